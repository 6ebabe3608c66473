-- Runs only where `repeated` has rows.
-- One row per repeated id whose content is not that of the first. A retry may come at another time and with another
-- context, so only what the embed itself said is compared.
insert into conflict
with again as (
    select arrival, event_id as id, to_json(row(*columns(* exclude (
        arrival, occurred_at, sent_at, received_at, key_id, deployment, session, viewer, tenant, page
    )))) as content
    from incoming_event where arrival in (select arrival from repeated)
    union all
    select arrival, action_id, to_json(row(*columns(* exclude (
        arrival, occurred_at, sent_at, received_at, key_id, deployment, session, viewer, tenant, page
    ))))
    from incoming_action where arrival in (select arrival from repeated)
),
first as (
    select event_id as id, to_json(row(*columns(* exclude (
        arrival, occurred_at, sent_at, received_at, key_id, deployment, session, viewer, tenant, page
    )))) as content
    from event
    where received_at >= getvariable('dedup_since')::timestamp
      and event_id in (select id from repeated where kind = 'event')
    union all
    select action_id, to_json(row(*columns(* exclude (
        arrival, occurred_at, sent_at, received_at, key_id, deployment, session, viewer, tenant, page
    ))))
    from action
    where received_at >= getvariable('dedup_since')::timestamp
      and action_id in (select id from repeated where kind = 'action')
)
select again.arrival, again.id
from again
join first using (id)
where again.content != first.content;

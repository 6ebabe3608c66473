-- Runs only where `repeated` has rows.
-- One row per repeated id whose content is not that of the first of its kind. A retry may come at another time and with
-- another context, so only what the embed itself said is compared; a `ready` says its deployment and tenant itself.
insert into id_conflict
with delivered as (
    select true as is_again, 'event' as kind, event_id as id, * exclude (event_id)
    from incoming_event
    where ingest_seq in (select ingest_seq from duplicate_line)
    union all by name
    select true as is_again, 'action' as kind, action_id as id, * exclude (action_id)
    from incoming_action
    where ingest_seq in (select ingest_seq from duplicate_line)
    union all by name
    select false as is_again, 'event' as kind, event_id as id, * exclude (event_id)
    from event
    where ingest_seq >= getvariable('dedup_from')::bigint
      and event_id in (select id from duplicate_line where kind = 'event')
    union all by name
    select false as is_again, 'action' as kind, action_id as id, * exclude (action_id)
    from action
    where ingest_seq >= getvariable('dedup_from')::bigint
      and action_id in (select id from duplicate_line where kind = 'action')
),
told as (
    select
        is_again,
        kind,
        id,
        ingest_seq,
        to_json(row(
            if(type = 'ready', [deployment::varchar, tenant], null),
            *columns(* exclude (
                is_again, kind, id, ingest_seq, occurred_at, sent_at, received_at,
                key_id, deployment, session, viewer, tenant, page
            ))
        )) as content
    from delivered
)
select distinct again.ingest_seq, again.id
from told as again
join told as first using (kind, id)
where again.is_again and not first.is_again and again.content != first.content;

-- Runs only if duplicate_line has rows. One row per repeated envelope whose content differs from that of a stored envelope
-- with its id. A retry may have another sending time, another context and another `is_internal`, so only the embed's own fields
-- are compared. For a `ready` event, these include deployment and tenant.

-- The first envelope with a repeated id may be in these segments, so that it has just been inserted.
insert into stored_id
select 'event' as kind, event_id as id, ingest_seq
from event
where ingest_seq >= getvariable('loaded_from')::bigint
  and ingest_seq < getvariable('loaded_until')::bigint
  and event_id in (select id from duplicate_line where kind = 'event')
union all
select 'action', action_id, ingest_seq
from action
where ingest_seq >= getvariable('loaded_from')::bigint
  and ingest_seq < getvariable('loaded_until')::bigint
  and action_id in (select id from duplicate_line where kind = 'action');

insert into id_conflict
with envelope as (
    select true as is_new, 'event' as kind, event_id as id, * exclude (event_id)
    from incoming_event
    where ingest_seq in (select ingest_seq from duplicate_line)
    union all by name
    select true as is_new, 'action' as kind, action_id as id, * exclude (action_id)
    from incoming_action
    where ingest_seq in (select ingest_seq from duplicate_line)
    union all by name
    select false as is_new, 'event' as kind, event_id as id, * exclude (event_id)
    from event
    where ingest_seq in (select ingest_seq from stored_id where kind = 'event')
    union all by name
    select false as is_new, 'action' as kind, action_id as id, * exclude (action_id)
    from action
    where ingest_seq in (select ingest_seq from stored_id where kind = 'action')
),
envelope_content as (
    select
        is_new,
        kind,
        id,
        ingest_seq,
        to_json(row(
            if(type = 'ready', [deployment::varchar, tenant], null),
            *columns(* exclude (
                is_new, kind, id, ingest_seq, occurred_at, sent_at, received_at,
                key_id, deployment, session, viewer, tenant, page, vendor, is_internal
            ))
        )) as content
    from envelope
)
select distinct repeated.ingest_seq, repeated.id
from envelope_content as repeated
join envelope_content as earlier using (kind, id)
where repeated.is_new and not earlier.is_new and repeated.content != earlier.content;

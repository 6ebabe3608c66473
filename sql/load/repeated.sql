-- One row per delivered envelope whose id was seen before: earlier in these segments, or in the last days of the store. What
-- comes out of a file is compared with the whole store: files are imported again years later, and that is rare.
-- The bound on received_at is a literal when the query is planned, so that older rows are never read. The delivered ids
-- are the small side: they are hashed, and the stored ones only stream past.
set variable dedup_since = (
    select if(
        bool_or(is_imported),
        timestamp '-infinity',
        make_timestamp(min(received_at) * 1000) - to_days(getvariable('dedup_days')::integer)
    )
    from arrived
);

create or replace temp table repeated as
with delivered as (
    select kind, id, arrival, row_number() over (partition by kind, id order by arrival) as turn
    from arrived
    where kind in ('event', 'action')
),
stored as (
    select 'event' as kind, event_id as id from event
    where received_at >= getvariable('dedup_since')::timestamp
      and event_id in (select id from delivered where kind = 'event')
    union all
    select 'action', action_id from action
    where received_at >= getvariable('dedup_since')::timestamp
      and action_id in (select id from delivered where kind = 'action')
)
select kind, id, arrival, turn
from delivered
where turn > 1 or (kind, id) in (select (kind, id) from stored);

-- Those of them whose content is not that of the first: conflict.sql finds them.
create or replace temp table conflict (arrival bigint, id uuid);

-- What goes into quarantine, whole: rejected.sql and conflicting.sql fill it.
create or replace temp table rejected as
select * exclude (raw_length, replayed_at) from quarantine limit 0;

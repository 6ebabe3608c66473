-- The delivered ids that the store has seen in the last days. The bound on received_at is a literal when the query is
-- planned, so that older rows are never read. The delivered ids are the small side: they are hashed, and the stored ones
-- only stream past. All of them, though, so it is asked once for all segments that wait.
set variable dedup_since = (
    select make_timestamp(min(received_at) * 1000) - to_days(getvariable('dedup_days')::integer) from delivered
);

create or replace temp table known as
select 'event' as kind, event_id as id
from event
where received_at >= getvariable('dedup_since')::timestamp
  and event_id in (select id from delivered where kind = 'event')
union all
select 'action', action_id
from action
where received_at >= getvariable('dedup_since')::timestamp
  and action_id in (select id from delivered where kind = 'action');

-- Adds the stored envelopes with one of the compared ids and compared_from <= ingest_seq < compared_until.
insert into stored_id
select 'event' as kind, event_id as id, ingest_seq
from event
where ingest_seq >= getvariable('compared_from')::bigint
  and ingest_seq < getvariable('compared_until')::bigint
  and event_id in (select id from compared_id where kind = 'event')
union all
select 'action', action_id, ingest_seq
from action
where ingest_seq >= getvariable('compared_from')::bigint
  and ingest_seq < getvariable('compared_until')::bigint
  and action_id in (select id from compared_id where kind = 'action');

-- One row per event or action without a type or key (spec 6.1), or with a negative `seq`.
-- What to do: envelope validation or sql/load has a bug. Report it with the row. The row stays; reports may omit it.
select table_name, id, ingest_seq, type, key_id, seq
from (
    select 'event' as table_name, event_id as id, ingest_seq, type, key_id, seq from event
    union all
    select 'action', action_id, ingest_seq, type, key_id, seq from action
)
where type is null
   or key_id is null
   or seq < 0
order by ingest_seq;

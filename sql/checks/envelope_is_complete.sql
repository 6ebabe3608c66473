-- One row per event or action that lacks what every one has (spec 6.1): type, key; or whose `seq` is below zero.
-- What to do: envelope validation or sql/load has a bug: report it with the row. The row is kept; reports may leave it out.
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

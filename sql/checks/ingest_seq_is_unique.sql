-- One row per ingest_seq (segment number × 2^32 + line) with more than one row.
-- What to do: a segment was loaded twice, see segment_is_loaded_once; then run `embedsink rebuild`.
select ingest_seq, count(*) as row_count, min(table_name) as first_table, max(table_name) as last_table
from (
    select 'event' as table_name, ingest_seq from event
    union all
    select 'action', ingest_seq from action
    union all
    select 'quarantine', ingest_seq from quarantine
    union all
    select 'loss', ingest_seq from loss
    union all
    select 'sync', ingest_seq from sync
    union all
    select 'directory_user', ingest_seq from directory_user
    union all
    select 'directory_group', ingest_seq from directory_group
)
group by ingest_seq
having count(*) > 1
order by ingest_seq;

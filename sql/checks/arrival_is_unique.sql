-- One row per place in the journal (segment number × 2^32 + line) from which more than one row came.
-- What to do: a segment was loaded twice, see segment_is_loaded_once; then `embedsink rebuild`.
select arrival, count(*) as row_count, min(table_name) as first_table, max(table_name) as last_table
from (
    select 'event' as table_name, arrival from event
    union all
    select 'action', arrival from action
    union all
    select 'quarantine', arrival from quarantine
    union all
    select 'loss', arrival from loss
    union all
    select 'sync', arrival from sync
)
group by arrival
having count(*) > 1
order by arrival;

-- One row per table and segment number from which rows came, although no such segment was loaded, or from no line of it.
-- What to do: the store was changed by hand, or the loader has a bug. Keep a copy of the data folder for the report,
-- then `embedsink rebuild`.
with place as (
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
select table_name, arrival >> 32 as segment_number, count(*) as row_count, min(arrival) as first_arrival
from place
where arrival is null
   or arrival & 4294967295 = 0
   or arrival >> 32 not in (select split_part(segment, '-', 1)::bigint from loaded_segment)
group by table_name, segment_number
order by table_name, segment_number;

-- One row per table and segment number whose rows belong to no loaded segment, or include a row without a line number.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report, then
-- run `embedsink rebuild`.
with stored_row as (
    select 'event' as table_name, ingest_seq, ingest_seq >> 32 as segment_number from event
    union all
    select 'action', ingest_seq, ingest_seq >> 32 from action
    union all
    select 'quarantine', ingest_seq, ingest_seq >> 32 from quarantine
    union all
    select 'loss', ingest_seq, ingest_seq >> 32 from loss
    union all
    select 'sync', ingest_seq, ingest_seq >> 32 from sync
    union all
    select 'directory_user', ingest_seq, ingest_seq >> 32 from directory_user
    union all
    select 'directory_group', ingest_seq, ingest_seq >> 32 from directory_group
    union all
    select 'directory_member', ingest_seq, ingest_seq >> 32 from directory_member
),
ledger as (
    select split_part(segment, '-', 1)::bigint as last_number, coalesce(first_number, last_number) as from_number
    from loaded_segment
),
segment_summary as (
    select table_name, segment_number, count(*) as row_count, min(ingest_seq) as first_ingest_seq,
        bool_or(ingest_seq is null or ingest_seq & 4294967295 = 0) as has_no_line
    from stored_row
    group by table_name, segment_number
)
select table_name, segment_number, row_count, first_ingest_seq
from segment_summary
asof left join ledger on segment_number >= from_number
where has_no_line
   or last_number is null
   or segment_number > last_number
order by table_name, segment_number;

-- One row per dbt sync that is stored more than once for its deployment, lacks a required field, or has file numbers that
-- repeat, have a gap or don't start at 0. All files without a sync share one row.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report, then
-- run `embedsink rebuild`.
with file as (
    select sync_ingest_seq, count(*) as file_count, count(distinct position) as position_count, max(position) + 1 as position_max
    from sync_file
    group by sync_ingest_seq
)
select
    deployment,
    sync_job_id,
    count(*) as row_count,
    min(ingest_seq) as first_ingest_seq
from sync
full join file on sync_ingest_seq = ingest_seq
group by deployment, sync_job_id
having count(*) > 1
    or deployment is null
    or sync_job_id is null
    or bool_or(completed_at is null or digest is null)
    or bool_or(file_count <> position_count or position_count <> position_max)
order by first_ingest_seq;

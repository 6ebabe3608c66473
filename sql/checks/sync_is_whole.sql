-- One row per dbt sync that its deployment has more than once, that lacks what every result has, or whose files are not
-- numbered from 0 without a gap.
-- What to do: the store was changed by hand, or the loader has a bug. Keep a copy of the data folder for the report, then
-- `embedsink rebuild`.
with file as (
    select sync_arrival, count(*) as file_count, count(distinct place) as place_count, max(place) + 1 as place_max
    from sync_file
    group by sync_arrival
)
select
    deployment,
    sync_job_id,
    count(*) as row_count,
    min(arrival) as first_arrival
from sync
full join file on sync_arrival = arrival
group by deployment, sync_job_id
having count(*) > 1
    or deployment is null
    or sync_job_id is null
    or bool_or(completed_at is null or digest is null)
    or bool_or(file_count <> place_count or place_count <> place_max)
order by first_arrival;

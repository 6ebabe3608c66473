-- One row per day, deployment and viewer who exported. What is usual is told by the 28 days before the day, or by as many as
-- there were since anybody in scope exported first, whatever period is asked for (see the macro usual_volume_max).
-- A viewer's volume is unusual when it is beyond what is usual for this viewer and for any: else whoever exports for the
-- first time would be unusual, or whoever exports much each day.
-- Traits: windows.
create or replace view export_volumes as
with exporting as materialized (
    from export_day
),
began as (
    -- No day is compared with more than 28 days before it, so of an earlier export the date does not matter.
    select min(day) - if((select count(*) from earlier_export) > 0, 28, 0) as first_day from exporting
),
exported as (
    select
        exporting.*,
        least(28, day - first_day) as day_count_before,
        list(exported_row_count) filter (exported_row_count > 0) over (
            partition by deployment, viewer order by day
            range between interval 28 days preceding and interval 1 day preceding
        ) as volumes
    from exporting
    cross join began
),
anybody as (
    select
        later.day,
        ceil(greatest(
            2 * median(exported_row_count), median(exported_row_count) + 4 * 1.4826 * mad(exported_row_count)
        ))::bigint as usual_row_count_max
    from (select distinct day from exporting) as later
    join exporting on exporting.day between later.day - 28 and later.day - 1
    where exported_row_count > 0
    group by later.day
),
total as (
    select
        day,
        sum(exported_row_count)::bigint as row_count,
        usual_volume_max(
            list(row_count) filter (row_count > 0) over (
                order by day range between interval 28 days preceding and interval 1 day preceding
            ),
            least(28, day - first_day)
        ) as usual_row_count_max
    from exporting
    cross join began
    group by day, first_day
),
compared as (
    select
        exported.*,
        if(
            day_count_before >= 3,
            greatest(usual_volume_max(volumes, day_count_before), anybody.usual_row_count_max),
            null
        ) as usual_row_count_max,
        row_count as total_row_count,
        total.usual_row_count_max as usual_total_row_count_max
    from exported
    join total using (day)
    left join anybody using (day)
)
select
    day,
    deployment,
    viewer,
    download_count,
    exported_row_count,
    usual_row_count_max,
    coalesce(exported_row_count > usual_row_count_max, false) as is_unusual,
    total_row_count,
    usual_total_row_count_max,
    coalesce(total_row_count > usual_total_row_count_max, false) as is_total_unusual
from compared
where getvariable('since') is null or day >= day_of(getvariable('since')::timestamp)
order by day, deployment, viewer;

comment on view export_volumes is
'Volumes of exports
Who exported more rows than usual, and on which day?
One row per day, deployment and viewer.';
comment on column export_volumes.day is 'Day, in the time zone asked for, else in UTC.';
comment on column export_volumes.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column export_volumes.viewer is 'Viewer who exported; null for all of whom the host page named none.';
comment on column export_volumes.download_count is 'Exports of the viewer on the day.';
comment on column export_volumes.exported_row_count is 'Rows that they told, summed; 0 when none did.';
comment on column export_volumes.usual_row_count_max is
'Up to how many rows are usual, for this viewer or for any, at least 1,000; null when fewer than 3 days before are known.';
comment on column export_volumes.is_unusual is 'Whether the viewer exported more than that.';
comment on column export_volumes.total_row_count is 'Rows that everybody in scope exported on the day.';
comment on column export_volumes.usual_total_row_count_max is
'Up to how many rows of everybody are usual on a day, at least 1,000; null when fewer than 3 days before are known.';
comment on column export_volumes.is_total_unusual is 'Whether everybody together exported more than that.';

-- One row per day, deployment and viewer with a download. The usual volume is computed from the 28 days before the day, or from
-- the days since the first download in scope if they are fewer (macro usual_volume_max). A volume is unusual if it exceeds the
-- usual volumes of the viewer and of all viewers.
-- Traits: windows.
create or replace view export_volumes as
with daily_export as materialized (
    from export_day
),
first_export as (
    -- A day is compared with 28 days at most, so the date of an earlier export does not matter.
    select min(day) - if((select count(*) from earlier_export) > 0, 28, 0) as first_day from daily_export
),
export_with_history as (
    select
        daily_export.*,
        least(28, day - first_day) as day_count_before,
        list(exported_row_count) filter (exported_row_count > 0) over (
            partition by deployment, viewer order by day
            range between interval 28 days preceding and interval 1 day preceding
        ) as volumes
    from daily_export
    cross join first_export
),
limit_of_any_viewer as (
    select
        day_after.day,
        ceil(greatest(
            2 * median(exported_row_count), median(exported_row_count) + 4 * 1.4826 * mad(exported_row_count)
        ))::bigint as usual_row_count_max
    from (select distinct day from daily_export) as day_after
    join daily_export on daily_export.day between day_after.day - 28 and day_after.day - 1
    where exported_row_count > 0
    group by day_after.day
),
daily_total as (
    select
        day,
        sum(exported_row_count)::bigint as row_count,
        usual_volume_max(
            list(row_count) filter (row_count > 0) over (
                order by day range between interval 28 days preceding and interval 1 day preceding
            ),
            least(28, day - first_day)
        ) as usual_row_count_max
    from daily_export
    cross join first_export
    group by day, first_day
),
export_with_limits as (
    select
        export_with_history.*,
        if(
            day_count_before >= 3,
            greatest(usual_volume_max(volumes, day_count_before), limit_of_any_viewer.usual_row_count_max),
            null
        ) as usual_row_count_max,
        row_count as total_row_count,
        daily_total.usual_row_count_max as usual_total_row_count_max
    from export_with_history
    join daily_total using (day)
    left join limit_of_any_viewer using (day)
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
from export_with_limits
where getvariable('since') is null or day >= day_of(getvariable('since')::timestamp)
order by day, deployment, viewer;

comment on view export_volumes is
'Export volumes
Who exported more rows than usual, and on which day?
One row per day, deployment and viewer.';
comment on column export_volumes.day is 'Day in the requested time zone, otherwise in UTC.';
comment on column export_volumes.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column export_volumes.viewer is 'Viewer who exported; null for all downloads without a viewer.';
comment on column export_volumes.download_count is 'Downloads of the viewer on the day.';
comment on column export_volumes.exported_row_count is 'Rows of these downloads, summed; 0 when none has a row count.';
comment on column export_volumes.usual_row_count_max is
'Threshold of the day: the greater of the usual maxima of this viewer and of all viewers, at least 1,000 rows; null with fewer than 3 earlier days.';
comment on column export_volumes.is_unusual is 'Whether exported_row_count exceeds usual_row_count_max.';
comment on column export_volumes.total_row_count is 'Rows that all viewers in scope exported on the day.';
comment on column export_volumes.usual_total_row_count_max is
'Threshold for the rows of all viewers on the day, at least 1,000; null with fewer than 3 earlier days.';
comment on column export_volumes.is_total_unusual is 'Whether total_row_count exceeds usual_total_row_count_max.';

-- One row per day and deployment with an active viewer on that day or in the 29 days before it. Any event with a viewer counts.
-- Days are in the reader's time zone (`timezone`); `interval` has no effect. Days after `until`, or after the current day
-- of the server's clock, are omitted, unless a viewer was active on them: such a row counts that day alone.
-- Traits: clock, windows.
create or replace view activity as
with viewer_day as materialized (
    from viewer_return
),
count_change as (
    -- A viewer counts for 1, 7 and 30 days from the active day, but only until the next active day.
    select
        deployment,
        unnest([active_on, active_on + 1, active_on + least(7, day_count), active_on + day_count]) as day,
        unnest([viewer_count, -viewer_count, 0, 0]) as daily,
        unnest([viewer_count, 0, -viewer_count, 0]) as weekly,
        unnest([viewer_count, 0, 0, -viewer_count]) as monthly
    from viewer_day
    union all
    -- A row for each day on which a viewer may still count.
    select deployment, active_on + unnest(range(30))::integer as day, 0, 0, 0
    from (select distinct deployment, active_on from viewer_day)
),
active_count as (
    select
        day,
        deployment,
        sum(sum(daily)) over so_far as daily,
        sum(sum(weekly)) over so_far as weekly,
        sum(sum(monthly)) over so_far as monthly
    from count_change
    group by day, deployment
    window so_far as (partition by deployment order by day)
),
active_count_in_period as (
    select
        *,
        day <= day_of(least(
            current_moment(),
            getvariable('until')::timestamp - interval 1 microsecond
        )) as is_past
    from active_count
    where (getvariable('since') is null or day >= day_of(getvariable('since')::timestamp))
)
select
    day,
    deployment,
    daily::bigint as daily_viewer_count,
    if(is_past, weekly, daily)::bigint as weekly_viewer_count,
    if(is_past, monthly, daily)::bigint as monthly_viewer_count
from active_count_in_period
where daily > 0 or (is_past and monthly > 0)
order by day, deployment;

comment on view activity is
'Activity
How many people are active in a day, a week and a month, and is the number growing?
One row per day and deployment.';
comment on column activity.day is 'Day in the requested time zone, otherwise in UTC.';
comment on column activity.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column activity.daily_viewer_count is 'Distinct viewers with any event on the day.';
comment on column activity.weekly_viewer_count is
'Distinct viewers with any event in the 7 days up to and including the day.';
comment on column activity.monthly_viewer_count is
'Distinct viewers with any event in the 30 days up to and including the day.';

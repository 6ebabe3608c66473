-- One row per day and deployment on which, or in the 29 days before which, anybody was seen. Any event with a viewer counts.
-- Days are the reader's (`timezone`), whatever `interval` says. Days after the last that the server's clock has seen, or that
-- `until` bounds, are left out; those on which somebody was seen never are, and count them alone.
-- Traits: clock, windows.
create or replace view activity as
with stretch as materialized (
    from viewer_return
),
change as (
    -- A viewer counts from the day on, for a day, for 7 and for 30, but only until they are seen again.
    select
        deployment,
        unnest([seen_on, seen_on + 1, seen_on + least(7, day_count), seen_on + day_count]) as day,
        unnest([viewer_count, -viewer_count, 0, 0]) as daily,
        unnest([viewer_count, 0, -viewer_count, 0]) as weekly,
        unnest([viewer_count, 0, 0, -viewer_count]) as monthly
    from stretch
    union all
    -- Every day on which any may still count has a row.
    select deployment, seen_on + unnest(range(30))::integer as day, 0, 0, 0
    from (select distinct deployment, seen_on from stretch)
),
counted as (
    select
        day,
        deployment,
        sum(sum(daily)) over so_far as daily,
        sum(sum(weekly)) over so_far as weekly,
        sum(sum(monthly)) over so_far as monthly
    from change
    group by day, deployment
    window so_far as (partition by deployment order by day)
),
bounded as (
    select
        *,
        day <= day_of(least(
            current_moment(),
            getvariable('until')::timestamp - interval 1 microsecond
        )) as has_come
    from counted
    where (getvariable('since') is null or day >= day_of(getvariable('since')::timestamp))
)
select
    day,
    deployment,
    daily::bigint as daily_viewer_count,
    if(has_come, weekly, daily)::bigint as weekly_viewer_count,
    if(has_come, monthly, daily)::bigint as monthly_viewer_count
from bounded
where daily > 0 or (has_come and monthly > 0)
order by day, deployment;

comment on view activity is
'Activity
How many people are active in a day, a week and a month, and is it growing?
One row per day and deployment.';
comment on column activity.day is 'Day, in the time zone asked for, else in UTC.';
comment on column activity.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column activity.daily_viewer_count is 'Distinct viewers with any event on the day.';
comment on column activity.weekly_viewer_count is 'Distinct viewers with any event in the 7 days that end with the day.';
comment on column activity.monthly_viewer_count is 'Distinct viewers with any event in the 30 days that end with the day.';

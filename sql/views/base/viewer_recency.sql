-- One row per day of the period, deployment and number of days: how many viewers of that day and the 29 before it were seen
-- last that many days ago. Each viewer is in one row of a day at most, so sums over days_ago count distinct viewers.
-- A viewer seen on two days is spread from the first until before the second, and after the last for 30 days. Days after the
-- last that the server's clock has seen, or that `until` bounds, are left out; those on which somebody was seen never are.
-- Days are the reader's. One that `since` cuts is counted whole, since the 29 days before it are looked at as well.
create or replace view viewer_recency as
with viewer_quarter as (
    -- Since 1972 no time zone begins its days within a quarter of an hour, and of those there are far fewer than of
    -- events: the way into the reader's time zone is what costs.
    select distinct deployment, viewer, time_bucket(interval 15 minutes, occurred_at) as seen_at
    from event_at_any_time
    where viewer is not null
      -- 29 whole days before the day of `since`, and time to spare for the clock change and the zone.
      and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp - interval 31 days)
      and (getvariable('until') is null or occurred_at < getvariable('until')::timestamp)
),
viewer_day as (
    select distinct deployment, viewer, day_of(seen_at) as seen_on
    from viewer_quarter
),
stretched as (
    select
        deployment,
        seen_on,
        least(30, lead(seen_on) over (partition by deployment, viewer order by seen_on) - seen_on) as day_count
    from viewer_day
),
counted as (
    select deployment, seen_on, day_count, count(*) as viewer_count
    from stretched
    group by deployment, seen_on, day_count
),
spread as (
    select *, unnest(range(day_count)) as days_ago, (seen_on + days_ago::integer) as day
    from counted
)
select day, deployment, days_ago, sum(viewer_count)::bigint as viewer_count
from spread
where (getvariable('since') is null or day >= day_of(getvariable('since')::timestamp))
  and (
      days_ago = 0
      or day <= day_of(least(
          current_moment(),
          getvariable('until')::timestamp - interval 1 microsecond
      ))
  )
group by day, deployment, days_ago;

comment on view viewer_recency is
'For each day and deployment, how many viewers were seen last on that day, the day before, and so on for 30 days.';

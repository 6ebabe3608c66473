-- One row per deployment, day on which anybody was seen, and number of days: how many viewers were seen that day and then not
-- for so many days, that one with it; 30 where they were not seen again, or later. Each viewer is in one stretch of a day at
-- most, so counts of stretches are counts of distinct viewers.
-- Days are the reader's. One that `since` cuts is counted whole, and the 29 days before it are looked at as well.
create or replace view viewer_return as
with viewer_days as (
    -- 29 whole days before the day of `since`, and time to spare for the clock change and the zone.
    select deployment, list_sort(list(distinct day_of(began_at))) as days
    from session_15min_between(
        getvariable('since')::timestamp - interval 31 days, getvariable('until')::timestamp
    )
    where viewer is not null
    group by deployment, viewer
),
stretch as (
    select deployment, unnest(days) as seen_on, unnest(list_append(days[2:], null)) as seen_again_on
    from viewer_days
)
select
    deployment,
    seen_on,
    coalesce(least(30, seen_again_on - seen_on), 30)::integer as day_count,
    count(*) as viewer_count
from stretch
group by deployment, seen_on, day_count;

comment on view viewer_return is
'For each deployment and day, how many viewers were seen that day and then not for how many days.';

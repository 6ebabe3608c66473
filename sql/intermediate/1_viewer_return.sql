-- One row per deployment, day with an active viewer, and number of days: how many viewers were active on that day and returned
-- after this number of days. The number of days is 30 for viewers who returned after 30 days or more, or never. The counts
-- are of distinct viewers. Days are in the reader's time zone. The day of `since` is complete, and the 29 days before it are
-- included.
create or replace view viewer_return as
with viewer_days as (
    -- 29 whole days before the day of `since`, plus a margin for time zones and clock changes.
    select deployment, list_sort(list(distinct day_of(began_at))) as days
    from session_15min_between(
        getvariable('since')::timestamp - interval 31 days, getvariable('until')::timestamp
    )
    where viewer is not null
    group by deployment, viewer
),
active_day as (
    select deployment, unnest(days) as active_on, unnest(list_append(days[2:], null)) as next_active_on
    from viewer_days
)
select
    deployment,
    active_on,
    coalesce(least(30, next_active_on - active_on), 30)::integer as day_count,
    count(*) as viewer_count
from active_day
group by deployment, active_on, day_count;

comment on view viewer_return is 'For each deployment and day, how many active viewers returned after how many days.';

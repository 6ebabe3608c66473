-- One row per day that was totaled more than once, per day with totals that is not marked as totaled, and per day with repeated
-- totals.
-- What to do: the daily totals of these days are wrong or not shown. embedsink has a bug: report it. `EMBEDSINK_DAILY_TOTALS=off`
-- deletes all totals.
with total as (
    select day, count(*) as repeated_count
    from daily_view
    group by day, tenant, deployment, surface
    union
    select day, count(*)
    from daily_download
    group by day, tenant, deployment, surface, format, target
    union
    select day, count(*)
    from daily_error_rate
    group by day, tenant, deployment, surface
    union
    select day, count(*)
    from daily_ai_query
    group by day, tenant, deployment, surface, agent_id
    union
    select day, count(*)
    from daily_tenant
    group by day, tenant, deployment, surface
),
marked as (
    select day, count(*) as totaled_count
    from totaled_day
    group by day
)
select day, coalesce(totaled_count, 0) as totaled_count, coalesce(max(repeated_count), 1) as repeated_count
from marked
full join total using (day)
group by day, totaled_count
having totaled_count is distinct from 1 or max(repeated_count) > 1
order by day;

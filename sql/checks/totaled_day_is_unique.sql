-- One row per day that was totaled more than once, and per day with totals that is not marked as totaled.
-- What to do: the daily totals of these days are wrong or not shown. embedsink has a bug: report it. `EMBEDSINK_DAILY_TOTALS=off`
-- deletes all totals.
with total as (
    select day from daily_view
    union
    select day from daily_download
    union
    select day from daily_error_rate
    union
    select day from daily_ai_query
    union
    select day from daily_tenant
)
select day, count(totaled_at) as totaled_count
from totaled_day
full join total using (day)
group by day
having totaled_count <> 1
order by day;

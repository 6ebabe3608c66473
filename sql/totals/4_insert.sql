-- Adds the totals of the days to total: the rows of the reports for each of these days.
insert into daily_view by name
select period_start::date as day, unnest(surface), * exclude (period_start, surface)
from views_of('session_to_total');

insert into daily_download by name
select period_start::date as day, unnest(surface), * exclude (period_start, surface)
from downloads_of('event_to_total');

insert into daily_error_rate by name
select
    period_start::date as day,
    unnest(surface),
    * exclude (period_start, surface, errors_per_view, error_free_session_rate)
from error_rates_of('session_to_total');

insert into daily_ai_query by name
select period_start::date as day, unnest(surface), * exclude (period_start, surface, answer_rate, failure_rate)
from ai_queries_of('ai_pair_to_total');

insert into daily_tenant by name
select unnest(tenant), * exclude (tenant, active_day_count)
from tenants_of('tenant_to_total');

insert into totaled_day by name
select day, current_moment() as totaled_at
from day_to_total;

-- One row per day, tenant form, deployment and surface of the daily totals in scope: rows of the report views.
create or replace view daily_view_in_scope as
select period_of(day::timestamp) as period_start, daily_view.*
from daily_view
where day in (from totaled_day_in_scope)
  and is_in_deployments(deployment)
  and is_total_of_tenant(tenant)
  and is_on_surface(surface);

comment on view daily_view_in_scope is 'Daily totals in scope of the report views.';

-- The rows in scope of a table of daily totals: those of all tenants together, or those of the requested tenant. A tenant that is
-- stored in clear text and hashed has a row for each.
create or replace macro daily_total_in_scope(source) as table
select period_of(day::timestamp) as period_start, *
from query_table(source)
where day in (from totaled_day_in_scope)
  and is_in_deployments(deployment)
  and is_total_of_tenant(tenant)
  and is_on_surface(surface);

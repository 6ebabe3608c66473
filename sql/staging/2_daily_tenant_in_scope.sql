-- One row per day, tenant and requested deployment of the daily totals in scope: rows of the report tenants for one day. Without
-- requested deployments or surface, these are the totals of all of them (null), which are not sums.
create or replace view daily_tenant_in_scope as
select *
from daily_tenant
where day in (from totaled_day_in_scope)
  and is_in_deployments(deployment)
  and (getvariable('deployments') is not null or deployment is null)
  and is_on_surface(surface)
  and (getvariable('surface') is not null or surface is null)
  and is_of_tenant(tenant);

comment on view daily_tenant_in_scope is 'Daily totals in scope of the report tenants.';

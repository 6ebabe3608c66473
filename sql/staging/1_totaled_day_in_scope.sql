-- One row per totaled day whose events the reports with daily totals leave out, because its totals replace them: a UTC day inside
-- the period, unless the request needs events. Keys that are limited to tenants read events only.
create or replace view totaled_day_in_scope as
select day
from totaled_day
where is_in_tenants(null)
  and coalesce(getvariable('internal')::varchar, 'exclude') = 'exclude'
  and getvariable('vendor') is null
  and coalesce(getvariable('timezone')::varchar, 'UTC') in ('UTC', 'Etc/UTC')
  and coalesce(getvariable('interval')::varchar, 'day') <> 'hour'
  and coalesce(len(getvariable('dimensions')::varchar[]), 0) = 0
  and getvariable('department') is null
  and getvariable('viewer_group') is null
  and (getvariable('since') is null or day >= getvariable('since')::timestamp)
  and (getvariable('until') is null or day + interval 1 day <= getvariable('until')::timestamp);

comment on view totaled_day_in_scope is 'Days whose totals replace their events, for the session variables that are set.';

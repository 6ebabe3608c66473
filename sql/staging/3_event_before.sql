-- One row per event before `until` of the deployments in scope, by the event's own deployment. The comparison of a dashboard
-- with the preceding period only tests whether a row exists, so it stops at the first.
create or replace view event_before as
select occurred_at
from event
where (getvariable('until') is null or occurred_at < getvariable('until')::timestamp)
  and is_in_deployments(deployment)
  and is_in_tenants(tenant);

comment on view event_before is 'Events before `until` of the deployments in scope, by their own deployment.';

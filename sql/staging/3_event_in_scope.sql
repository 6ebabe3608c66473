-- One row per event in scope: deployments, tenant, surface, `since` and `until` (UTC).
create or replace view event_in_scope as
select *
from event_between(getvariable('since')::timestamp, getvariable('until')::timestamp)
where is_on_surface(surface);

comment on view event_in_scope is
'Events in scope: the session variables since, until, surface, deployments and tenant, where they are set.';

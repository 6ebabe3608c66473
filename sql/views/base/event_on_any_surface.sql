-- One row per event in scope, whatever its time and surface, with its deployment and tenant resolved: its own, or else what
-- the session's `ready` said. This is the one place where the scope on deployments is enforced: an event without any is
-- seen only where no deployments are asked for, and an empty list sees nothing.
-- A variable that nobody set is null, and bounds nothing.
create or replace view event_on_any_surface as
with resolved as (
    select
        event.* replace (
            coalesce(event.deployment, session_context.deployment) as deployment,
            coalesce(event.tenant, session_context.tenant) as tenant
        )
    from event
    left join session_context using (key_id, session)
)
select *
from resolved
where (getvariable('deployments') is null or list_contains(getvariable('deployments')::bigint[], deployment))
  and (getvariable('tenant') is null or tenant = getvariable('tenant')::varchar);

comment on view event_on_any_surface is
'Every event in scope, whatever its time and surface, with the deployment and tenant that its session''s ready event supplies.';

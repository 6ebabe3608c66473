-- One row per event in scope at or after first_at and before end_at (null: no limit), on any surface. Its deployment and tenant
-- are its own, or else those that the session's `ready` events name at any time (session_context_between). Deployments and
-- tenants outside the scope of the reader's key are excluded. So are other tenants than the requested one, unless is_any_tenant.
-- The variable `internal` decides whether events of internal people are included, and `vendor` selects those of one vendor.
create or replace macro event_between(first_at, end_at, is_any_tenant := false) as table
select
    event.* replace (
        coalesce(event.deployment, context.deployment) as deployment,
        coalesce(event.tenant, context.tenant) as tenant
    )
from event
left join session_context_between(first_at, end_at) as context using (key_id, session)
where is_between(occurred_at, first_at, end_at)
  and is_in_deployments(coalesce(event.deployment, context.deployment))
  and is_in_tenants(coalesce(event.tenant, context.tenant))
  and (is_any_tenant or is_of_tenant(coalesce(event.tenant, context.tenant)))
  and is_internal_in_scope(event.is_internal)
  and is_of_vendor(event.vendor);

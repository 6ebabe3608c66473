-- One row per delivery and reason in scope: how many events the forwarder reports as lost. Its deployment is its own, or else
-- that of the session's `ready` events. Its time is the time of the report. A loss has no surface and no tenant, so these
-- don't limit it.
create or replace view loss_in_scope as
with resolved as (
    select loss.* replace (coalesce(loss.deployment, context.deployment) as deployment)
    from loss
    left join session_context_between(null, null) as context using (key_id, session)
)
select *
from resolved
where is_in_deployments(deployment)
  and is_in_tenants(null)
  and is_in_period(received_at);

comment on view loss_in_scope is 'Losses in scope, as forwarders reported them; a loss has neither surface nor tenant.';

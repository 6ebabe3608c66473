-- One row per delivery and reason in scope: how many events the forwarder says it had to give up. Its deployment is its
-- own, or else what the session's `ready` says, as for events. Its time is when the server heard of it; surface and tenant
-- it has none, so they bound nothing. A variable that nobody set is null, and bounds nothing.
create or replace view loss_in_scope as
with resolved as (
    select loss.* replace (coalesce(loss.deployment, context.deployment) as deployment)
    from loss
    left join session_context_between(null, null) as context using (key_id, session)
)
select *
from resolved
where is_in_deployments(deployment)
  and is_in_period(received_at);

comment on view loss_in_scope is
'What forwarders in scope had to give up, as they reported it; a loss names neither surface nor tenant.';

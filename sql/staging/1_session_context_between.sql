-- One row per key and session whose `ready` events name a deployment or a tenant of the whole session (spec 6.4), where an
-- event from first_at on and before end_at lacks one; null means no limit. Rows are by key, so that one key's `ready` gives no
-- deployment to another key's events. A value is null where the `ready` events disagree: a guess could show one deployment's
-- events to readers of another. There are no rows until an event lacks what a `ready` event names (docs/decisions/0014).
create or replace macro session_context_between(first_at, end_at) as table
select
    key_id,
    session,
    session_digest,
    if(deployment_min = deployment_max, deployment_min, null) as deployment,
    if(tenant_min = tenant_max, tenant_min, null) as tenant
from session_ready
where (first_at is null and end_at is null)
   -- Without this condition, a join hashes all sessions, even for a short period.
   or session in (
       select session
       from event
       where (first_at is not null or end_at is not null) -- otherwise all events would be read
         and (deployment is null or tenant is null)
         and is_between(occurred_at, first_at, end_at)
   );

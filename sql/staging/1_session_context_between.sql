-- One row per key and session whose `ready` events name a deployment or a tenant (spec 6.4). If first_at or end_at is set,
-- a session has a row only if one of its events at or after first_at and before end_at lacks a deployment or a tenant. A value
-- is null if the `ready` events of the session disagree: a guess could show the events of one deployment to readers of another.
-- A `ready` event does not apply to events of another key. There are no rows until an event lacks a value that a `ready` event
-- names (docs/decisions/0014).
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

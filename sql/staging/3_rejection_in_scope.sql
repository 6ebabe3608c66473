-- One row per kept rejection in scope, all of them and without their text: quarantine_in_scope shows the newest whole.
-- One without a deployment is seen only where no deployments are asked for. What was rejected has no surface that could be
-- trusted, so it bounds nothing. A variable that nobody set is null, and bounds nothing.
create or replace view rejection_in_scope as
select ingest_seq, received_at, key_id, deployment, session, viewer, tenant, reason, replayed_at
from quarantine
where is_in_deployments(deployment)
  and is_in_period(received_at)
  and is_of_tenant(tenant);

comment on view rejection_in_scope is 'Every kept rejection in scope: when, whose, why, and whether it was replayed.';

-- One row per stored rejection in scope, without its text (quarantine_in_scope has the text of the newest). Rejections without
-- a deployment are visible only to readers of all deployments. A rejection has no reliable surface, so the surface does not
-- limit it.
create or replace view rejection_in_scope as
select ingest_seq, received_at, key_id, deployment, session, viewer, tenant, vendor, reason, replayed_at
from quarantine
where is_in_deployments(deployment)
  and is_in_tenants(tenant)
  and is_in_period(received_at)
  and is_of_tenant(tenant)
  and is_of_vendor(vendor);

comment on view rejection_in_scope is
'Stored rejections in scope: time, sender, reason, and whether a replay accepted them.';

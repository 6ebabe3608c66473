-- One row per key and session of the `ready` events with first_seq <= ingest_seq < end_seq, without a scope: its row of
-- session_ready.
create or replace macro session_ready_of_events(first_seq, end_seq) as table
select
    key_id,
    session,
    digest_of(session) as session_digest,
    min(deployment) as deployment_min,
    max(deployment) as deployment_max,
    min(tenant) as tenant_min,
    max(tenant) as tenant_max
from event
where type = 'ready'
  and session is not null
  and (deployment is not null or tenant is not null)
  and ingest_seq >= first_seq
  and ingest_seq < end_seq
group by key_id, session;

-- One row per dbt sync in scope: by deployment, by completion in the period, and by `sync_job_ids`. A sync belongs to a whole
-- deployment, so surface and tenant don't limit it.
create or replace view sync_in_scope as
select *
from sync
where is_in_deployments(deployment)
  and is_in_tenants(null)
  and is_in_period(completed_at)
  and (getvariable('sync_job_ids') is null or list_contains(getvariable('sync_job_ids')::varchar[], sync_job_id));

comment on view sync_in_scope is
'Dbt syncs in scope: the session variables deployments, since, until and sync_job_ids, where they are set.';

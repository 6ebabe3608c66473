-- One row per stored rejection in scope, newest first, at most 1,000. Rejections without a deployment are visible only to
-- readers of all deployments.
-- `raw` is the beginning of the rejected text, or all of it when `quarantine_id` names one rejection. The rows are chosen by
-- ingest_seq first, so that no other text is read.
create or replace view quarantine_in_scope as
with newest as (
    select ingest_seq
    from quarantine
    where is_in_deployments(deployment)
      and is_in_tenants(tenant)
      and is_in_period(received_at)
      and is_of_tenant(tenant)
      and (getvariable('quarantine_id') is null or quarantine_id = getvariable('quarantine_id')::uuid)
    order by ingest_seq desc
    limit (select least(coalesce(getvariable('row_limit')::bigint, 1000), 1000))
),
rest as (
    select quarantine_id, string_agg(raw, '' order by piece) as raw
    from quarantine_rest
    where quarantine_id = getvariable('quarantine_id')::uuid
    group by quarantine_id
)
select quarantine.* replace (quarantine.raw || coalesce(rest.raw, '') as raw)
from quarantine
left join rest using (quarantine_id)
where ingest_seq in (select ingest_seq from newest)
order by ingest_seq desc;

comment on view quarantine_in_scope is 'Stored rejections in scope, newest first.';

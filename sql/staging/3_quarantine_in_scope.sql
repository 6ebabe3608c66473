-- One row per kept rejection that the reader may see, newest first, at most 1,000. One without a deployment is seen only
-- where no deployments are asked for. A variable that nobody set is null, and bounds nothing.
-- `raw` is the beginning of what was sent; all of it where one is asked for by quarantine_id. The thousand are chosen by
-- ingest_seq alone, so that no other text is read than theirs.
create or replace view quarantine_in_scope as
with newest as (
    select ingest_seq
    from quarantine
    where is_in_deployments(deployment)
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

comment on view quarantine_in_scope is 'Kept rejections in scope, newest first.';

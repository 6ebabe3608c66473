-- One row per direction and type of accepted rows (ingested_in_scope), and one each for stored rejections, unstored rejections,
-- duplicates, losses and dbt syncs. The types of rejections are unchecked text, so they are not counted separately.
create or replace view ingested_count as
select
    outcome,
    if(outcome = 'accepted', direction, null) as direction,
    if(outcome = 'accepted', type, null) as type,
    count(*) as row_count
from ingested_in_scope
group by all
union all by name
-- Duplicates and unstored rejections are only counted. Their scope is unknown, so they count only without any filter.
select outcome, row_count
from (
    select
        nullif(sum(duplicate_count), 0)::bigint as duplicate,
        nullif(sum(counted_only_count), 0)::bigint as quarantined
    from loaded_segment
    where coalesce(
        getvariable('deployments')::varchar, getvariable('tenants')::varchar, getvariable('tenant')::varchar,
        getvariable('session')::varchar, getvariable('type')::varchar, getvariable('key_id')::varchar, getvariable('since')::varchar,
        getvariable('until')::varchar, getvariable('outcome')::varchar
    ) is null
      and (getvariable('after') is null or segment > printf('%012d', getvariable('after')::bigint // 4294967296) || '~')
      and (getvariable('up_to') is null or segment < printf('%012d', getvariable('up_to')::bigint // 4294967296) || '~')
) unpivot (row_count for outcome in (duplicate, quarantined))
union all by name
select 'lost' as outcome, sum(lost_count)::bigint as row_count
from loss_in_scope
where (getvariable('after') is null or ingest_seq > getvariable('after')::bigint)
  and (getvariable('up_to') is null or ingest_seq <= getvariable('up_to')::bigint)
  and (getvariable('session') is null or session = getvariable('session')::varchar)
  and (getvariable('key_id') is null or key_id = getvariable('key_id')::varchar)
  and coalesce(getvariable('type')::varchar, getvariable('tenant')::varchar, getvariable('outcome')::varchar) is null
having sum(lost_count) > 0
union all by name
select 'sync' as outcome, count(*) as row_count
from sync
where is_in_deployments(deployment)
  and is_in_tenants(null)
  and (getvariable('after') is null or ingest_seq > getvariable('after')::bigint)
  and (getvariable('up_to') is null or ingest_seq <= getvariable('up_to')::bigint)
  and (getvariable('since') is null or received_at >= getvariable('since')::timestamp)
  and (getvariable('until') is null or received_at < getvariable('until')::timestamp)
  and (getvariable('key_id') is null or key_id = getvariable('key_id')::varchar)
  and coalesce(
    getvariable('session')::varchar, getvariable('type')::varchar, getvariable('tenant')::varchar,
    getvariable('outcome')::varchar
) is null
having count(*) > 0;

comment on view ingested_count is 'Rows ingested in scope, counted by outcome, direction and type.';

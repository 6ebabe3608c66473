-- One row per quarter of an hour, session, viewer and surface in scope with an event at or after first_at and before end_at
-- (null: no limit), with counts of its events. Several rows may have the same key: add them up. Deployment and tenant are
-- resolved as in event_between.
-- An event that no rollup covers is a separate row: it is newer than the last rollup, in a quarter of an hour that first_at
-- or end_at splits, or before 2012. Without the variables rollup_batch_id and rollup_watermark, each event is a row.
create or replace macro session_15min_between(first_at, end_at) as table
with event_row as (
    from session_15min_of_event()
    where ingest_seq > coalesce(getvariable('rollup_watermark')::bigint, -1)
    union all
    from session_15min_of_event()
    where ingest_seq <= getvariable('rollup_watermark')::bigint
      and (
          occurred_at < greatest(
              time_bucket(interval 15 minutes, first_at + interval 899999999 microseconds), timestamp '2012-01-01'
          )
          or occurred_at >= time_bucket(interval 15 minutes, end_at)
      )
),
counts as (
    select * exclude (batch_id)
    from session_15min
    where batch_id <= getvariable('rollup_batch_id')::bigint
      and (first_at is null or began_at >= first_at)
      and (end_at is null or began_at <= end_at - interval 15 minutes)
    union all by name
    select * exclude (ingest_seq, occurred_at)
    from event_row
    where is_between(occurred_at, first_at, end_at)
)
select
    counts.* replace (
        coalesce(counts.deployment, context.deployment) as deployment,
        coalesce(counts.tenant, context.tenant) as tenant
    )
from counts
left join session_context_between(first_at, end_at) as context
    on counts.key_id = context.key_id and counts.session = context.session_digest
where is_in_deployments(coalesce(counts.deployment, context.deployment))
  and is_in_tenants(coalesce(counts.tenant, context.tenant))
  and is_of_tenant(coalesce(counts.tenant, context.tenant))
  and is_on_surface(counts.surface)
  and is_internal_in_scope(counts.is_internal)
  and is_of_vendor(counts.vendor);

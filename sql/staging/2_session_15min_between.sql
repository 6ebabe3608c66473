-- One row per quarter of an hour, session, viewer and surface in scope with an event from first_at on and before end_at (null:
-- no limit), with counts of its events. Several rows may have the same key: add them up. Deployment and tenant are resolved as
-- in event_between.
-- Rollups equal events because no period begins within a quarter of an hour (macros period_of and day_of). Events that no
-- rollup covers are rows of their own: those newer than the last rollup, in quarters that first_at or end_at cuts, or before
-- 2012. If the variables that readers set are missing, all events are.
create or replace macro session_15min_between(first_at, end_at) as table
with single as (
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
part as (
    select * exclude (batch_id)
    from session_15min
    where batch_id <= getvariable('rollup_batch_id')::bigint
      and (first_at is null or began_at >= first_at)
      and (end_at is null or began_at <= end_at - interval 15 minutes)
    union all by name
    select * exclude (ingest_seq, occurred_at)
    from single
    where is_between(occurred_at, first_at, end_at)
)
select
    part.* replace (
        coalesce(part.deployment, context.deployment) as deployment,
        coalesce(part.tenant, context.tenant) as tenant
    )
from part
left join session_context_between(first_at, end_at) as context
    on part.key_id = context.key_id and part.session = context.session_digest
where is_in_deployments(coalesce(part.deployment, context.deployment))
  and is_of_tenant(coalesce(part.tenant, context.tenant))
  and is_on_surface(part.surface);

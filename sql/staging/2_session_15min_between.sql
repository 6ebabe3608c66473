-- One row per quarter of an hour, session, viewer and surface in scope with an event from first_at on and before end_at (null:
-- no limit), with counts of its events. Several rows may have the same key: add them up. Deployment and tenant are resolved as
-- in event_between.
-- Rollups equal events because no period begins within a quarter of an hour (macros period_of and day_of). Events that no
-- rollup covers are rows of their own: those newer than the last rollup, in quarters that first_at or end_at cuts, or before
-- 2012. Without the variables that readers set, all events are.
create or replace macro session_15min_between(first_at, end_at) as table
with single as (
    select * from event where ingest_seq > coalesce(getvariable('rollup_watermark')::bigint, -1)
    union all
    select *
    from event
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
    select
        if(
            occurred_at < timestamp '2012-01-01', occurred_at, time_bucket(interval 15 minutes, occurred_at)
        ) as began_at,
        key_id,
        deployment,
        tenant,
        digest_of(session) as session,
        digest_of(viewer) as viewer,
        surface,
        1 as event_count,
        (type = 'view')::integer as view_count,
        (type = 'dashboard-loaded')::integer as loaded_count,
        (type = 'download')::integer as download_count,
        (type = 'drilldown')::integer as drilldown_count,
        (type = 'ai-query' and status = 'submitted')::integer as ai_submitted_count,
        (type = 'ai-query' and status = 'completed')::integer as ai_completed_count,
        (type = 'ai-query' and status = 'error')::integer as ai_error_count,
        (type = 'error')::integer as error_count,
        (type = 'error' and coalesce(fatal, false))::integer as fatal_count,
        occurred_at as first_at,
        occurred_at as last_at,
        if(
            type in ('drilldown', 'download') or (type = 'ai-query' and status = 'completed'), occurred_at, null
        ) as first_value_at
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

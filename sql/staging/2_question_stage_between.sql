-- One row per stage of an AI query (an ai-query event) of the deployments in scope, at or after first_at and before end_at (null:
-- no limit). question_key stands for session, chat and text. Deployment and tenant are resolved as in event_between. Stages of
-- all tenants and surfaces are included, because an answer may have another tenant or surface than its question. Stages newer
-- than the last rollup come from `event`.
create or replace macro question_stage_between(first_at, end_at) as table
with stage as (
    select * exclude (batch_id)
    from question_stage
    where batch_id <= getvariable('rollup_batch_id')::bigint
    union all by name
    from question_stage_of_event()
    where ingest_seq > coalesce(getvariable('rollup_watermark')::bigint, -1)
)
select
    stage.* replace (
        coalesce(stage.deployment, context.deployment) as deployment,
        coalesce(stage.tenant, context.tenant) as tenant
    )
from stage
left join session_context_between(first_at, end_at) as context
    on stage.key_id = context.key_id and stage.session = context.session_digest
where is_between(occurred_at, first_at, end_at)
  and is_in_deployments(coalesce(stage.deployment, context.deployment))
  and is_in_tenants(coalesce(stage.tenant, context.tenant))
  and is_internal_in_scope(stage.is_internal)
  and is_of_vendor(stage.vendor);

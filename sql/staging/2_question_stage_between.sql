-- One row per stage of an AI query (an ai-query event) of the deployments in scope, from first_at on and before end_at (null:
-- no limit). question_key stands for session, chat and text. Deployment and tenant are resolved as in event_between. Stages of
-- all tenants and surfaces are included, because an answer may have another tenant or surface than its question. Stages newer
-- than the last rollup come from `event`. If the variables that readers set are missing, all stages come from `event`.
create or replace macro question_stage_between(first_at, end_at) as table
with part as (
    select * exclude (batch_id)
    from question_stage
    where batch_id <= getvariable('rollup_batch_id')::bigint
    union all by name
    from question_stage_of_event()
    where ingest_seq > coalesce(getvariable('rollup_watermark')::bigint, -1)
)
select
    part.* replace (
        coalesce(part.deployment, context.deployment) as deployment,
        coalesce(part.tenant, context.tenant) as tenant
    )
from part
left join session_context_between(first_at, end_at) as context
    on part.key_id = context.key_id and part.session = context.session_digest
where is_between(occurred_at, first_at, end_at)
  and is_in_deployments(coalesce(part.deployment, context.deployment));

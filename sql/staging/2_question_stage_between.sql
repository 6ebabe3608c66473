-- One row per stage of an AI query (an ai-query event) of the deployments in scope, from first_at on and before end_at (null
-- bounds nothing), with a number for its session, chat and text instead of these. Its deployment and tenant are resolved as
-- event_between does. Stages of every tenant and surface are here, since an end may be of another one than its question.
-- What came since the last summing is not in the table yet; readers set the variables, and for whoever does not, nothing is.
create or replace macro question_stage_between(first_at, end_at) as table
with part as (
    select * exclude (batch_id)
    from question_stage
    where batch_id <= getvariable('rollup_batch_id')::bigint
    union all by name
    select
        ingest_seq,
        occurred_at,
        key_id,
        deployment,
        tenant,
        digest_of(session) as session,
        viewer,
        surface,
        seq,
        status,
        agent_id,
        question_key_of(session, chat_id, query) as question_key
    from event
    where type = 'ai-query'
      and ingest_seq > coalesce(getvariable('rollup_watermark')::bigint, -1)
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

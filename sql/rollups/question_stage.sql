-- Adds the AI query stages of a batch to question_stage.
insert into question_stage by name
select
    getvariable('batch_id')::bigint as batch_id,
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
where ingest_seq between getvariable('rollup_from')::bigint and getvariable('rollup_to')::bigint
  and type = 'ai-query';

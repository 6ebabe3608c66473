-- One row per ai-query event of the store, without a scope: its row of question_stage.
create or replace macro question_stage_of_event() as table
select
    ingest_seq,
    occurred_at,
    key_id,
    deployment,
    tenant,
    digest_of(session) as session,
    viewer,
    surface,
    is_internal,
    vendor,
    seq,
    status,
    agent_id,
    question_key_of(session, chat_id, query) as question_key
from event
where type = 'ai-query';

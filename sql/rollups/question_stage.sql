-- The stages of AI queries of some arrivals.
insert into question_stage by name
select
    getvariable('summing')::bigint as summed_in,
    arrival,
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
    question_of(session, chat_id, query) as question
from event
where arrival between getvariable('summing_from')::bigint and getvariable('summing_to')::bigint
  and type = 'ai-query';

-- One row per stage of an AI query in the period or at most 24 hours outside it, of any tenant and surface: the input of
-- ai_pair. All events without a session count as one session. For a page, only the stages of the questions with a stage on it.
-- queue_key is one number for deployment, session, chat and text. A window over one number takes a quarter less time.
create or replace view ai_stage as
select
    ingest_seq,
    occurred_at,
    seq,
    status,
    deployment,
    hash(deployment, question_key) as queue_key,
    surface,
    tenant,
    viewer,
    agent_id,
    session is null as has_no_session
from question_stage_between(
    getvariable('since')::timestamp - interval 24 hour, getvariable('until')::timestamp + interval 24 hour
)
where not is_paginated()
   or question_key in (
       select question_key
       from question_stage_between(getvariable('since')::timestamp, getvariable('until')::timestamp + interval 24 hour)
       where is_paginated() -- otherwise all stages would be read
         and is_on_page(ingest_seq)
   );

comment on view ai_stage is
'Stages of AI queries of the deployments in scope, in the period and 24 hours before and after it, without texts.';

-- One row per stage of an AI query (an ai-query event) in the period, and per stage of the same questions at any other time:
-- what queries are paired from, whatever tenant and surface are asked for. Events without a session are one session here.
-- `queue` is one number for the deployment and the question, since windows over one number take a quarter less time.
create or replace view ai_stage as
select
    ingest_seq,
    occurred_at,
    seq,
    status,
    deployment,
    hash(deployment, question_key) as queue,
    surface,
    tenant,
    viewer,
    agent_id,
    session is null as has_no_session
from (
    from question_stage_between(getvariable('since')::timestamp, getvariable('until')::timestamp)
    union all
    from question_stage_between(null::timestamp, null::timestamp)
    where not is_in_period(occurred_at)
      and question_key in (
          select question_key
          from question_stage_between(getvariable('since')::timestamp, getvariable('until')::timestamp)
      )
);

comment on view ai_stage is
'Every stage of an AI query of the deployments in scope, and those of the same questions at any other time, without their texts.';

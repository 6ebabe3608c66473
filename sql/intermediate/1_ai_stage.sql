-- One row per stage of an AI query in the period, and per stage of the same questions at any other time, of any tenant and
-- surface: the input of ai_pair. All events without a session count as one session.
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
'Stages of AI queries of the deployments in scope, and stages of the same questions at other times, without texts.';

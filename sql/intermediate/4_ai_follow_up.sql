-- One row per AI query in scope (ai_lifecycle): whether its session asked a question of the same shape again within 10
-- minutes, and whether a drilldown or download followed. The follow-up may be after the period, on another surface, or of
-- another tenant. A follow-up is later in the same slot of 10 minutes, or in the next slot. So the first and last event of a
-- slot suffice.
create or replace view ai_follow_up as
with question as (
    select
        deployment, session, submitted_at, finished_at, surface, viewer, status, occurred_at, ingest_seq, query
    from ai_lifecycle
    union all by name
    -- Questions that can only be follow-ups: after the period, on other surfaces, of other tenants. Some are also above,
    -- which makes no difference.
    select deployment, session, occurred_at as submitted_at, query
    from event_of_any_tenant
    where type = 'ai-query'
      and status = 'submitted'
      and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp)
      and (getvariable('until') is null or occurred_at <= getvariable('until')::timestamp + interval 10 minutes)
      and (
          getvariable('surface') is not null
          or getvariable('tenant') is not null
          or occurred_at >= getvariable('until')::timestamp
      )
),
-- Compute the shape of each text once, because that takes longer than the rest of the view.
shape as (
    select query, shape_of(query) as query_shape from (select distinct query from question)
),
keyed_question as (
    select
        *,
        null_safe_key(deployment) as deployment_key,
        coalesce(finished_at, submitted_at) as ended_at,
        time_bucket(interval 10 minutes, submitted_at) as submitted_slot,
        time_bucket(interval 10 minutes, ended_at) as ended_slot
    from question
    left join shape using (query)
),
question_slot as (
    select deployment_key, session, query_shape, submitted_slot, min(submitted_at) as first_at, max(submitted_at) as last_at
    from keyed_question
    where session is not null
    group by all
),
action_slot as (
    select
        null_safe_key(deployment) as deployment_key,
        session,
        time_bucket(interval 10 minutes, occurred_at) as ended_slot,
        min(occurred_at) as first_at,
        max(occurred_at) as last_at
    from event_of_any_tenant
    where type in ('drilldown', 'download')
      and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp)
      -- An answer is at most 24 hours later than its question.
      and (getvariable('until') is null or occurred_at <= getvariable('until')::timestamp + interval '24:10:00')
      and session in (select session from question)
    group by all
)
select
    keyed_question.* exclude (deployment_key, submitted_slot, ended_slot),
    coalesce(question_slot.last_at > submitted_at, false)
        or coalesce(next_question_slot.first_at <= submitted_at + interval 10 minutes, false) as is_asked_again,
    coalesce(action_slot.last_at > ended_at, false)
        or coalesce(next_action_slot.first_at <= ended_at + interval 10 minutes, false) as is_followed_by_action
from keyed_question
left join question_slot using (deployment_key, session, query_shape, submitted_slot)
left join question_slot as next_question_slot
    on keyed_question.deployment_key = next_question_slot.deployment_key
    and keyed_question.session = next_question_slot.session
    and keyed_question.query_shape = next_question_slot.query_shape
    and keyed_question.submitted_slot + interval 10 minutes = next_question_slot.submitted_slot
left join action_slot using (deployment_key, session, ended_slot)
left join action_slot as next_action_slot
    on keyed_question.deployment_key = next_action_slot.deployment_key
    and keyed_question.session = next_action_slot.session
    and keyed_question.ended_slot + interval 10 minutes = next_action_slot.ended_slot
where ingest_seq is not null;

comment on view ai_follow_up is
'AI queries in scope: whether each was asked again, and whether a drilldown or download followed.';

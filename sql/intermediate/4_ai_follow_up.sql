-- One row per AI query in scope, as ai_lifecycle pairs its stages, with what its session did next: whether a question of
-- the same shape was asked again, and whether something was drilled into or downloaded. Next is later, by at most 10
-- minutes; it may lie after the period, be on another surface (dashboards alone have drilldowns and downloads) and of another
-- tenant than those asked for.
-- What is next lies in the same slot of 10 minutes, later, or in the one that follows, early enough. So the first and the
-- last of each slot tell it, and nothing is sorted.
create or replace view ai_follow_up as
with question as (
    select
        deployment, session, submitted_at, finished_at, surface, viewer, status, occurred_at, ingest_seq, query
    from ai_lifecycle
    union all by name
    -- Questions that may only follow: after the period, on other surfaces, of other tenants. A question that is above as well
    -- makes no difference, since only the first and the last of a slot count.
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
-- Each text once: folding one takes longer than all else that is done with it.
shape as (
    select query, shape_of(query) as query_shape from (select distinct query from question)
),
asked as (
    select
        *,
        null_safe_key(deployment) as place,
        coalesce(finished_at, submitted_at) as ended_at,
        time_bucket(interval 10 minutes, submitted_at) as asked_slot,
        time_bucket(interval 10 minutes, ended_at) as ended_slot
    from question
    left join shape using (query)
),
asking as (
    select place, session, query_shape, asked_slot, min(submitted_at) as first_at, max(submitted_at) as last_at
    from asked
    where session is not null
    group by all
),
acting as (
    select
        null_safe_key(deployment) as place,
        session,
        time_bucket(interval 10 minutes, occurred_at) as ended_slot,
        min(occurred_at) as first_at,
        max(occurred_at) as last_at
    from event_of_any_tenant
    where type in ('drilldown', 'download')
      and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp)
      and session in (select session from question)
    group by all
)
select
    asked.* exclude (place, asked_slot, ended_slot),
    coalesce(asking.last_at > submitted_at, false)
        or coalesce(next_asking.first_at <= submitted_at + interval 10 minutes, false) as is_asked_again,
    coalesce(acting.last_at > ended_at, false)
        or coalesce(next_acting.first_at <= ended_at + interval 10 minutes, false) as is_followed_by_action
from asked
left join asking using (place, session, query_shape, asked_slot)
left join asking as next_asking
    on asked.place = next_asking.place
    and asked.session = next_asking.session
    and asked.query_shape = next_asking.query_shape
    and asked.asked_slot + interval 10 minutes = next_asking.asked_slot
left join acting using (place, session, ended_slot)
left join acting as next_acting
    on asked.place = next_acting.place
    and asked.session = next_acting.session
    and asked.ended_slot + interval 10 minutes = next_acting.ended_slot
where ingest_seq is not null;

comment on view ai_follow_up is
'Every AI query in scope, with whether it was asked again and whether a drilldown or download followed.';

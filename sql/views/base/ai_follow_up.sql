-- One row per AI query in scope, as ai_lifecycle pairs its stages, with what its session did next: whether a question of
-- the same shape was asked again, and whether something was drilled into or downloaded. Next is later, by at most 10
-- minutes; it may lie after the period, and an action on another surface: dashboards alone have drilldowns and downloads.
create or replace view ai_follow_up as
with question as (
    select
        deployment, session, submitted_at, finished_at, surface, viewer, status, occurred_at, arrival, query
    from ai_lifecycle
    union all by name
    -- The others are among those above, and these only follow them.
    select deployment, session, occurred_at as submitted_at, query
    from event_at_any_time
    where type = 'ai-query'
      and status = 'submitted'
      and occurred_at >= getvariable('until')::timestamp
      and occurred_at <= getvariable('until')::timestamp + interval 10 minutes
),
-- Each text once: folding one takes longer than all else that is done with it.
shape as (
    select query, shape_of(query) as query_shape from (select distinct query from question)
),
asked as (
    select
        *,
        coalesce(finished_at, submitted_at) as ended_at,
        session is not null and count(submitted_at) over (
            partition by deployment, session, query_shape order by submitted_at
            range between interval 1 microsecond following and interval 10 minutes following
        ) > 0 as is_asked_again
    from question
    left join shape using (query)
    qualify arrival is not null
),
acted as (
    select deployment, session, occurred_at as acted_at
    from event_on_any_surface
    where type in ('drilldown', 'download')
      and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp)
      and session in (select session from event_in_scope where type = 'ai-query')
)
select
    asked.*,
    coalesce(acted_at <= ended_at + interval 10 minutes, false) as is_followed_by_action
from asked
asof left join acted
    on comparable(asked.deployment) = comparable(acted.deployment)
    and asked.session = acted.session
    and asked.ended_at < acted.acted_at;

comment on view ai_follow_up is
'Every AI query in scope, with whether it was asked again and whether a drilldown or download followed.';

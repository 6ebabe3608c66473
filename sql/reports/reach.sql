-- One row per deployment, surface and stage: all seven stages if any session has an event on the surface. A session reaches a
-- stage if it has an event of the stage on the surface, even without earlier stages. It counts once in each stage. Each stage
-- is a bit, so that one pass over the events with little memory finds the stages of each session.
create or replace view reach as
with stage (stage_number, stage, bit) as (
    values
    (1, 'ready', 1),
    (2, 'view', 2),
    (3, 'loaded', 4),
    (4, 'drilldown', 8),
    (5, 'download', 16),
    (6, 'ai_query', 32),
    (7, 'ai_answered', 64)
),
session_stages as (
    select
        deployment,
        surface,
        coalesce(bit_or(case
            when type = 'ready' then 1
            when type = 'view' then 2
            when type = 'dashboard-loaded' then 4
            when type = 'drilldown' then 8
            when type = 'download' then 16
            when type = 'ai-query' and status = 'submitted' then 32
            when type = 'ai-query' and status = 'completed' then 64
        end), 0) as bits
    from event_in_scope
    where session is not null
    group by deployment, surface, session
),
sessions_by_stages as (
    select deployment, surface, bits, count(*) as sessions_alike_count
    from session_stages
    group by deployment, surface, bits
),
stage_count as (
    select
        deployment,
        surface,
        stage,
        stage_number,
        coalesce(sum(sessions_alike_count) filter (bits & bit > 0), 0)::bigint as session_count,
        coalesce(sum(sessions_alike_count) filter (bits & bit > 0 and bits & 1 > 0), 0)::bigint as session_with_ready_count,
        coalesce(sum(sessions_alike_count) filter (bits & 1 > 0), 0)::bigint as ready_count
    from sessions_by_stages
    cross join stage
    group by deployment, surface, stage, stage_number
)
-- The share counts only sessions with ready, so it never exceeds 1.
select
    deployment,
    surface,
    stage,
    session_count,
    session_with_ready_count / nullif(ready_count, 0) as share_of_ready,
    stage_number::bigint as stage_number,
    session_with_ready_count
from stage_count
order by deployment, surface, stage_number;

comment on view reach is
'Reach
How many sessions reach a view, a loaded dashboard, a drilldown, a download, an AI question or its answer?
One row per deployment, surface and stage.';
comment on column reach.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column reach.surface is 'Surface of the events.';
comment on column reach.stage is 'Stage: ready, view, loaded, drilldown, download, ai_query or ai_answered.';
comment on column reach.session_count is 'Distinct sessions that reached the stage, with or without ready.';
comment on column reach.share_of_ready is
'session_with_ready_count ÷ sessions with ready; null without such sessions. Unit: share.';
comment on column reach.stage_number is
'Number of the stage, from 1, only for sorting: a session can reach the stages in any order.';
comment on column reach.session_with_ready_count is 'Distinct sessions with ready that reached the stage.';

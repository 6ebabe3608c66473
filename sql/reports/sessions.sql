-- One row per deployment and session with any event in scope, in the order in which the sessions began.
-- The deployment is part of what a session is: whoever reuses an id elsewhere adds nothing here, and no reader sees
-- another deployment's part. The key is not: a new one must not cut sessions in two.
-- The time spent is that of session_duration.
-- A text is told only where the events name one alone: several viewers of one id are nobody's session. Surfaces and
-- modes are few, so bits do: 833,000 sessions more with the least and greatest of each text don't fit into 64 MiB.
-- Traits: windows.
create or replace view sessions as
with seen as (
    select
        deployment,
        session,
        min(occurred_at) as started_at,
        max(occurred_at) as ended_at,
        case bit_or(case surface when 'dashboard' then 1 when 'app' then 2 when 'chat' then 4 end)
            when 1 then 'dashboard' when 2 then 'app' when 4 then 'chat'
        end as surface,
        case bit_or(case mode when 'signed' then 1 when 'private' then 2 end)
            when 1 then 'signed' when 2 then 'private'
        end as mode,
        if(min(tenant) = max(tenant), min(tenant), null) as tenant,
        if(min(viewer) = max(viewer), min(viewer), null) as viewer,
        count(*) filter (type = 'view') as view_count,
        count(*) filter (type = 'navigate') as navigate_count,
        count(*) filter (type = 'dashboard-loaded') as dashboard_loaded_count,
        count(*) filter (type = 'download') as download_count,
        count(*) filter (type = 'drilldown') as drilldown_count,
        count(*) filter (type = 'ai-query' and status = 'submitted') as ai_query_count,
        count(*) filter (type = 'error') as error_count,
        coalesce(bool_or(fatal), false) as has_fatal_error,
        bool_or(type = 'ready') as has_ready,
        min(ingest_seq) as ingest_seq
    from event_in_scope
    where session is not null
    group by deployment, session
)
select
    seen.deployment,
    seen.session,
    started_at,
    ended_at,
    duration_s,
    seen.* exclude (deployment, session, started_at, ended_at)
from seen
join session_duration
    on seen.session = session_duration.session
    and null_safe_key(seen.deployment) = null_safe_key(session_duration.deployment)
order by started_at, ingest_seq;

comment on view sessions is
'Sessions, one by one
What did each session do, for how long, and what failed in it?
One row per deployment and session.';
comment on column sessions.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column sessions.session is 'Session, as the host page named it; within one deployment it is one session.';
comment on column sessions.started_at is 'First event of the session in the period, in UTC.';
comment on column sessions.ended_at is 'Last event of the session in the period, in UTC.';
comment on column sessions.duration_s is 'Time between its events, without gaps of more than 30 minutes (EMBEDSINK_SESSION_GAP_MINUTES). Unit: s.';
comment on column sessions.surface is 'Surface of its events; null when there are several.';
comment on column sessions.mode is
'How the viewer was authenticated, by its ready events: signed or private; null when they name none or both.';
comment on column sessions.tenant is
'Tenant of its events, from the host page or the ready event; null when they name none or several.';
comment on column sessions.viewer is 'Viewer of its events; null when they name none or several.';
comment on column sessions.view_count is 'View events: one on load and one per navigation inside the embed.';
comment on column sessions.navigate_count is 'Navigations inside the embed.';
comment on column sessions.dashboard_loaded_count is 'Dashboards that were rendered whole.';
comment on column sessions.download_count is 'Exports.';
comment on column sessions.drilldown_count is 'Drilldowns.';
comment on column sessions.ai_query_count is 'AI questions that were seen being asked.';
comment on column sessions.error_count is 'Errors that the embed showed, fatal ones included.';
comment on column sessions.has_fatal_error is 'Whether an error took down a whole surface.';
comment on column sessions.has_ready is 'Whether a ready event was seen in the period.';
comment on column sessions.ingest_seq is 'Order of ingest_seq; a stable key for paging.';

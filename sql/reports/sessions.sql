-- One row per deployment and session with any event in scope, in the order in which the sessions began. The same session id in
-- two deployments is two sessions. Events that several keys of a deployment send with one session id belong to one session. A
-- text column is null unless all events agree. Surfaces and modes are bits, because minimum and maximum take more memory.
-- sessions_by_directory also has the department and the groups of the viewer, as requested.
-- Traits: windows.
create or replace view sessions as
with session_summary as (
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
        count(*) filter (type = 'x-filter') as filter_count,
        count(*) filter (type = 'ai-query' and status = 'submitted') as ai_query_count,
        count(*) filter (type = 'error') as error_count,
        coalesce(bool_or(fatal), false) as has_fatal_error,
        bool_or(type = 'ready') as has_ready,
        min(ingest_seq) as ingest_seq
    from session_event
    group by deployment, session
)
select
    session_summary.deployment,
    session_summary.session,
    started_at,
    ended_at,
    duration_s,
    session_summary.* exclude (deployment, session, started_at, ended_at)
from session_summary
join session_duration
    on session_summary.session = session_duration.session
    and null_safe_key(session_summary.deployment) = null_safe_key(session_duration.deployment)
order by started_at, ingest_seq;

create or replace view sessions_by_directory as
with session_viewer as (
    -- The groups are one text, so that a session is one row.
    select viewer, any_value(department) as department, string_agg("group", ', ' order by "group") as "group"
    from viewer_dimension
    group by viewer
)
select
    deployment,
    session,
    started_at,
    ended_at,
    duration_s,
    surface,
    mode,
    tenant,
    sessions.viewer,
    session_viewer.department,
    session_viewer."group",
    sessions.* exclude (deployment, session, started_at, ended_at, duration_s, surface, mode, tenant, viewer)
from sessions
left join session_viewer on sessions.viewer = session_viewer.viewer
where is_requested_viewer(session_viewer.viewer)
order by started_at, ingest_seq;

comment on view sessions is
'Session log
What happened in each session, how long did it last, and did anything fail?
One row per deployment and session.';
comment on column sessions.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column sessions.session is 'Session id of the host page, unique within a deployment.';
comment on column sessions.started_at is 'Time of the first event of the session in the period, in UTC.';
comment on column sessions.ended_at is 'Time of the last event of the session in the period, in UTC.';
comment on column sessions.duration_s is
'Time between its events, without gaps of more than 30 minutes (EMBEDSINK_SESSION_GAP_MINUTES). Unit: s.';
comment on column sessions.surface is 'Surface of its events; null with several.';
comment on column sessions.mode is
'Authentication of the viewer in its ready events: signed or private; null with none or both.';
comment on column sessions.tenant is
'Tenant of its events, from the host page or the ready event; null with none or several.';
comment on column sessions.viewer is 'Viewer of its events; null with none or several.';
comment on column sessions.view_count is 'View events: one on load and one per navigation inside the embed.';
comment on column sessions.navigate_count is 'Navigations inside the embed.';
comment on column sessions.dashboard_loaded_count is 'Completely rendered dashboards.';
comment on column sessions.download_count is 'Downloads.';
comment on column sessions.drilldown_count is 'Drilldowns.';
comment on column sessions.filter_count is 'Changes of filters (x-filter).';
comment on column sessions.ai_query_count is 'AI questions with a submitted event.';
comment on column sessions.error_count is 'Errors that the embed showed, including fatal ones.';
comment on column sessions.has_fatal_error is 'Whether an error stopped a whole surface.';
comment on column sessions.has_ready is 'Whether the session has a ready event in the period.';
comment on column sessions.ingest_seq is 'Position in the order of ingestion; a stable key for paging.';

comment on view sessions_by_directory is 'The report sessions with the dimensions that `by` requests, for the requested people.';
comment on column sessions_by_directory.department is
'Department of the viewer in the directory; null without one, or unless `by` has `department`.';
comment on column sessions_by_directory."group" is
'Groups of the viewer in the directory, sorted and separated by commas; null without one, or unless `by` has `group`.';

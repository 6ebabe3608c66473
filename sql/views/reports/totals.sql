-- One row for all that is in scope; none where nothing happened, since zeros would claim that we measured.
-- Sessions and viewers are told apart over all of it, so these are not what the rows of other reports add up to. Sessions are
-- those of `sessions`: what one deployment's events call by one id.
create or replace view totals as
with seen as (
    select
        session,
        count(*) as events,
        count(*) filter (type = 'view') as views,
        count(*) filter (type = 'dashboard-loaded') as loads,
        count(*) filter (type = 'download') as downloads,
        count(*) filter (type = 'drilldown') as drilldowns,
        count(*) filter (type = 'ai-query' and status = 'submitted') as asked,
        count(*) filter (type = 'ai-query' and status = 'completed') as answered,
        count(*) filter (type = 'ai-query' and status = 'error') as failed,
        count(*) filter (type = 'error') as errors,
        count(*) filter (type = 'error' and fatal) as fatal_errors
    from event_in_scope
    group by deployment, session
)
select
    -- Viewers apart from sessions: a session may have several, and told apart in one step they take a quarter longer.
    (select count(distinct viewer) from event_in_scope) as viewer_count,
    count(session) as session_count,
    sum(events)::bigint as event_count,
    sum(views)::bigint as view_count,
    sum(loads)::bigint as dashboard_loaded_count,
    sum(downloads)::bigint as download_count,
    sum(drilldowns)::bigint as drilldown_count,
    sum(asked)::bigint as ai_query_count,
    sum(answered)::bigint as ai_answered_count,
    sum(failed)::bigint as ai_failed_count,
    sum(errors)::bigint as error_count,
    sum(fatal_errors)::bigint as fatal_count,
    count(session) filter (errors > 0) as session_with_error_count,
    (session_count - session_with_error_count) / nullif(session_count, 0) as error_free_session_rate
from seen
having count(*) > 0;

comment on view totals is
'Totals
How much happened in all, in how many sessions and by how many people?
One row per scope: all that was asked for.';
comment on column totals.viewer_count is 'Distinct viewers with any event: one seen on many days, or in several deployments, is one.';
comment on column totals.session_count is 'Distinct sessions with any event.';
comment on column totals.event_count is 'Events of any type.';
comment on column totals.view_count is 'View events: one on load and one per navigation inside the embed.';
comment on column totals.dashboard_loaded_count is 'Dashboards rendered whole.';
comment on column totals.download_count is 'Exports of data and images.';
comment on column totals.drilldown_count is 'Drilldowns.';
comment on column totals.ai_query_count is 'AI questions seen being asked.';
comment on column totals.ai_answered_count is
'AI questions that were answered, by when they were, also those of which only the answer was seen.';
comment on column totals.ai_failed_count is
'AI questions that failed, by when they did, also those of which only the failure was seen.';
comment on column totals.error_count is 'Errors that the embed showed, fatal ones included.';
comment on column totals.fatal_count is 'Errors that took down the whole surface.';
comment on column totals.session_with_error_count is 'Distinct sessions with an error.';
comment on column totals.error_free_session_rate is
'Sessions without an error of all sessions; null without sessions. Unit: share.';

-- One row for all that is in scope; none where nothing happened, since zeros would claim that we measured.
-- Sessions and viewers are told apart over all of it, so these are not what the rows of other reports add up to. Sessions are
-- those of `sessions`: what one deployment's events call by one id. Each in a step of its own: with all counts beside them,
-- they take three times as long.
create or replace view totals as
with seen as (
    select session, bool_or(error_count > 0) as has_error
    from session_15min_in_scope
    where session is not null
    group by deployment, session
),
told_apart as (
    select count(*) as session_count, count(*) filter (has_error) as session_with_error_count
    from seen
),
counted as (
    select
        count(distinct viewer) as viewer_count,
        sum(event_count)::bigint as event_count,
        sum(view_count)::bigint as view_count,
        sum(loaded_count)::bigint as dashboard_loaded_count,
        sum(download_count)::bigint as download_count,
        sum(drilldown_count)::bigint as drilldown_count,
        sum(ai_submitted_count)::bigint as ai_query_count,
        sum(ai_completed_count)::bigint as ai_answered_count,
        sum(ai_error_count)::bigint as ai_failed_count,
        sum(error_count)::bigint as error_count,
        sum(fatal_count)::bigint as fatal_count
    from session_15min_in_scope
)
select
    viewer_count,
    session_count,
    event_count,
    view_count,
    dashboard_loaded_count,
    download_count,
    drilldown_count,
    ai_query_count,
    ai_answered_count,
    ai_failed_count,
    error_count,
    fatal_count,
    session_with_error_count,
    (session_count - session_with_error_count) / nullif(session_count, 0) as error_free_session_rate
from counted
cross join told_apart
where event_count > 0;

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

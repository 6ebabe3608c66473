-- One row for everything in scope; no row without events.
-- Sessions and viewers are distinct over the whole scope, so they are not the sums of other reports. A session is one
-- deployment's events with one session id, as in `sessions`. Each distinct count has a separate step (sql/README.md).
create or replace view totals as
with session_error as (
    select session, bool_or(error_count > 0) as has_error
    from session_15min_in_scope
    where session is not null
    group by deployment, session
),
session_totals as (
    select count(*) as session_count, count(*) filter (has_error) as session_with_error_count
    from session_error
),
event_totals as (
    select
        count(distinct viewer) as viewer_count,
        sum(event_count)::bigint as event_count,
        sum(view_count)::bigint as view_count,
        sum(loaded_count)::bigint as dashboard_loaded_count,
        sum(download_count)::bigint as download_count,
        sum(drilldown_count)::bigint as drilldown_count,
        sum(filter_count)::bigint as filter_count,
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
    filter_count,
    ai_query_count,
    ai_answered_count,
    ai_failed_count,
    error_count,
    fatal_count,
    session_with_error_count,
    (session_count - session_with_error_count) / nullif(session_count, 0) as error_free_session_rate
from event_totals
cross join session_totals
where event_count > 0;

comment on view totals is
'Totals
How much happened in total, in how many sessions and by how many people?
One row per scope.';
comment on column totals.viewer_count is
'Distinct viewers with any event. A viewer who is active on several days or in several deployments counts once.';
comment on column totals.session_count is 'Distinct sessions with any event.';
comment on column totals.event_count is 'Events of any type.';
comment on column totals.view_count is 'View events: one on load and one per navigation inside the embed.';
comment on column totals.dashboard_loaded_count is 'Completely rendered dashboards.';
comment on column totals.download_count is 'Downloads of data and images.';
comment on column totals.drilldown_count is 'Drilldowns.';
comment on column totals.filter_count is 'Changes of filters (x-filter).';
comment on column totals.ai_query_count is 'AI questions with a submitted event.';
comment on column totals.ai_answered_count is
'Answered AI questions by the time of the answer, including those without a submitted event.';
comment on column totals.ai_failed_count is
'Failed AI questions by the time of the error, including those without a submitted event.';
comment on column totals.error_count is 'Errors that the embed showed, including fatal ones.';
comment on column totals.fatal_count is 'Errors that stopped the whole surface.';
comment on column totals.session_with_error_count is 'Distinct sessions with an error.';
comment on column totals.error_free_session_rate is
'Sessions without an error ÷ all sessions; null without sessions. Unit: share.';

-- One row per period, deployment and surface with any event, including those without errors.
-- A rate is null where its denominator is 0. A separate step makes sessions distinct, and sums are doubles (sql/README.md).
-- error_rates_by_directory is also per department and group of the viewer, as requested. Its source has these two columns, and
-- `columns` selects them if they exist.
-- A session with several viewers then counts in the row of each of them.
create or replace macro error_rates_of(source) as table
with session_period as (
    select
        period_of(began_at) as period_start,
        deployment,
        columns(lambda name: name in ('surface', 'department', 'group')),
        session,
        sum(error_count::double) as errors,
        sum(fatal_count::double) as fatal_errors,
        sum(view_count::double) as views
    from query_table(source)
    group by all
)
select
    period_start,
    deployment,
    columns(lambda name: name in ('surface', 'department', 'group')),
    sum(errors)::bigint as error_count,
    sum(fatal_errors)::bigint as fatal_count,
    sum(views)::bigint as view_count,
    error_count / nullif(view_count, 0) as errors_per_view,
    count(session) as session_count,
    count(session) filter (errors > 0) as session_with_error_count,
    (session_count - session_with_error_count) / nullif(session_count, 0) as error_free_session_rate
from session_period
group by all
order by period_start, deployment, columns(lambda name: name in ('surface', 'department', 'group'));

create or replace view error_rates_of_events as
from error_rates_of('session_15min_in_scope');

create or replace view error_rates as
with counted as (
    select * exclude (errors_per_view, error_free_session_rate) from error_rates_of('session_15min_untotaled')
    union all by name
    select * exclude (day, tenant) from daily_error_rate_in_scope
)
select
    period_start,
    deployment,
    surface,
    sum(counted.error_count)::bigint as error_count,
    sum(counted.fatal_count)::bigint as fatal_count,
    sum(counted.view_count)::bigint as view_count,
    sum(counted.error_count)::bigint / nullif(sum(counted.view_count)::bigint, 0) as errors_per_view,
    sole(counted.session_count) as session_count,
    sole(counted.session_with_error_count) as session_with_error_count,
    sole((counted.session_count - counted.session_with_error_count) / nullif(counted.session_count, 0))
        as error_free_session_rate
from counted
group by period_start, deployment, surface
order by period_start, deployment, surface;

create or replace view error_rates_by_directory as
from error_rates_of('session_15min_by_directory');

comment on view error_rates is
'Error rates
How often does each surface fail?
One row per period, deployment and surface.';
comment on column error_rates.period_start is 'Start of the hour, day, week (Monday) or month, in UTC.';
comment on column error_rates.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column error_rates.surface is 'Surface of the events.';
comment on column error_rates.error_count is 'Errors that the embed showed, including fatal ones.';
comment on column error_rates.fatal_count is 'Errors that stopped the whole surface.';
comment on column error_rates.view_count is 'View events.';
comment on column error_rates.errors_per_view is 'error_count ÷ view_count; null without views. Unit: errors per view.';
comment on column error_rates.session_count is 'Distinct sessions with any event in the period.';
comment on column error_rates.session_with_error_count is 'Distinct sessions with an error in the period.';
comment on column error_rates.error_free_session_rate is
'Sessions without an error ÷ all sessions; null without sessions. Unit: share.';

comment on view error_rates_of_events is 'The report error_rates without daily totals.';

comment on view error_rates_by_directory is 'The report error_rates with the dimensions that `by` requests, for the requested people.';
comment on column error_rates_by_directory.department is
'Department of the viewer in the directory; null without one, or unless `by` has `department`.';
comment on column error_rates_by_directory."group" is
'Group of the viewer in the directory; null without one, or unless `by` has `group`. A viewer counts in each group, so rows do not add up.';

-- One row per period, deployment and surface with a view event.
-- A navigation sends a `navigate` and a `view` event; only `view` events count.
-- views_by_directory is also per department and group of the viewer, as requested. Its source has these two columns, and
-- `columns` selects them if they exist.
create or replace macro views_of(source) as table
select
    period_of(began_at) as period_start,
    deployment,
    columns(lambda name: name in ('surface', 'department', 'group')),
    sum(view_count)::bigint as view_count,
    count(distinct session) as session_count,
    count(distinct viewer) as viewer_count
from query_table(source)
where view_count > 0
group by all
order by all;

create or replace view views_of_events as
from views_of('session_15min_in_scope');

create or replace view views as
with counted as (
    from views_of('session_15min_untotaled')
    union all by name
    select * exclude (day, tenant) from daily_view_in_scope
)
select
    period_start,
    deployment,
    surface,
    sum(counted.view_count)::bigint as view_count,
    sole(counted.session_count) as session_count,
    sole(counted.viewer_count) as viewer_count
from counted
group by period_start, deployment, surface
order by period_start, deployment, surface;

create or replace view views_by_directory as
from views_of('session_15min_by_directory');

comment on view views is
'Views
How often is each surface viewed, in how many sessions and by how many people?
One row per period, deployment and surface.';
comment on column views.period_start is 'Start of the hour, day, week (Monday) or month, in UTC.';
comment on column views.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column views.surface is 'Surface of the view events: dashboard, app or chat.';
comment on column views.view_count is 'View events: one on load and one per navigation inside the embed.';
comment on column views.session_count is 'Distinct sessions with a view event in the period.';
comment on column views.viewer_count is 'Distinct viewers with a view event in the period.';

comment on view views_of_events is 'The report views without daily totals.';

comment on view views_by_directory is 'The report views with the dimensions that `by` requests, for the requested people.';
comment on column views_by_directory.department is
'Department of the viewer in the directory; null without one, or unless `by` has `department`.';
comment on column views_by_directory."group" is
'Group of the viewer in the directory; null without one, or unless `by` has `group`. A viewer counts in each group, so rows do not add up.';

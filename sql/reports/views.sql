-- One row per period, deployment and surface with a view event.
-- A navigation sends a `navigate` and a `view` event; only `view` events count.
create or replace view views as
select
    period_of(began_at) as period_start,
    deployment,
    surface,
    sum(view_count)::bigint as view_count,
    count(distinct session) as session_count,
    count(distinct viewer) as viewer_count
from session_15min_in_scope
where view_count > 0
group by all
order by all;

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

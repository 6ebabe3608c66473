-- One row per period, deployment and dashboard with a view event or a load on the surface `dashboard`; other surfaces send no
-- loads. A load counts in the period in which it ended. A view that never loaded counts in the period of the view event.
-- Traits: clock, windows.
create or replace view load_times as
select
    period_of(occurred_at) as period_start,
    deployment,
    public_id,
    count(*) filter (type = 'dashboard-loaded') as loaded_count,
    count(*) filter (not is_loaded) as never_loaded_count,
    quantile_cont(load_duration_ms, 0.5) as load_p50_ms,
    quantile_cont(load_duration_ms, 0.75) as load_p75_ms,
    quantile_cont(load_duration_ms, 0.95) as load_p95_ms,
    avg(widget_count) as widget_count_avg,
    count(*) filter (type = 'view') as view_count,
    count(*) filter (type = 'view' and (session is null or public_id is null)) as unpaired_view_count
from dashboard_load
group by period_start, deployment, public_id
order by period_start, deployment, public_id;

comment on view load_times is
'Load times
How long do dashboards take to load, and how many never finish loading?
One row per period, deployment and dashboard.';
comment on column load_times.period_start is 'Start of the hour, day, week (Monday) or month, in UTC.';
comment on column load_times.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column load_times.public_id is
'Public id of the dashboard; null when neither the event nor the view event before it has one.';
comment on column load_times.loaded_count is 'Loads: dashboard-loaded events, sent when all widgets have rendered.';
comment on column load_times.never_loaded_count is
'View events, more than a minute old, that were not followed by a load before the dashboard''s next view event in the session.';
comment on column load_times.load_p50_ms is
'Median time from mount until all widgets are loaded, exact; null when no load has a duration. Unit: ms.';
comment on column load_times.load_p75_ms is
'75th percentile of the time from mount until all widgets are loaded, exact; null when no load has a duration. Unit: ms.';
comment on column load_times.load_p95_ms is
'95th percentile of the time from mount until all widgets are loaded, exact; null when no load has a duration. Unit: ms.';
comment on column load_times.widget_count_avg is
'Mean widget count of the loads that have a widget count; null when none has one.';
comment on column load_times.view_count is 'View events on the surface dashboard.';
comment on column load_times.unpaired_view_count is
'View events without a session or a public id; never_loaded_count excludes them, because it is unknown whether they loaded.';

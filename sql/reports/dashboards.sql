-- One row per deployment and dashboard with any event in the whole period. dashboard_event_of assigns events without a dashboard
-- id; events that belong to no dashboard are not counted.
create or replace view dashboards as
select
    deployment,
    public_id,
    arg_max(title, {occurred_at: occurred_at, ingest_seq: ingest_seq}) filter (type = 'view') as title,
    count(*) filter (type = 'view') as view_count,
    count(distinct viewer) filter (type = 'view') as viewer_count,
    quantile_cont(load_duration_ms, 0.5) as load_p50_ms,
    quantile_cont(load_duration_ms, 0.95) as load_p95_ms,
    count(*) filter (type = 'download') as download_count,
    count(*) filter (type = 'drilldown') as drilldown_count,
    count(*) filter (type = 'error') as error_count,
    max(occurred_at) filter (type = 'view') as last_viewed_at
from dashboard_event_of(
    if(
        is_column_requested(['download_count', 'drilldown_count', 'error_count']) or getvariable('tenant') is not null,
        timestamp 'infinity',
        -- Later actions add no row: the view event of their dashboard is in scope.
        getvariable('since')::timestamp + interval 1 day
    )
)
where public_id is not null and is_in_period(occurred_at) and is_of_tenant(tenant)
group by deployment, public_id
order by view_count desc, deployment, public_id;

comment on view dashboards is
'Dashboards
Which dashboards are viewed, by how many people, how fast do they load, and how often do they fail?
One row per deployment and dashboard.';
comment on column dashboards.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column dashboards.public_id is 'Public id of the dashboard.';
comment on column dashboards.title is 'Title in the latest view event that has one.';
comment on column dashboards.view_count is 'View events of the dashboard.';
comment on column dashboards.viewer_count is 'Distinct viewers with a view event of the dashboard.';
comment on column dashboards.load_p50_ms is
'Median time from mount until all widgets are loaded, exact; null when no load has a duration. Unit: ms.';
comment on column dashboards.load_p95_ms is
'95th percentile of the time from mount until all widgets are loaded, exact; null when no load has a duration. Unit: ms.';
comment on column dashboards.download_count is
'Downloads while this dashboard was the last one that the session viewed.';
comment on column dashboards.drilldown_count is
'Drilldowns while this dashboard was the last one that the session viewed.';
comment on column dashboards.error_count is 'Errors while this dashboard was the last one that the session viewed.';
comment on column dashboards.last_viewed_at is 'Time of the last view event, in UTC; null without view events.';

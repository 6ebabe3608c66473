-- One row per period, deployment, surface, format and target with a download.
-- An impossible row count (negative, above a hundred billion, or with a fraction) is not added. The sum is null when no
-- download has a row count; images have none. A separate step makes viewers distinct (sql/README.md).
-- downloads_by_directory is also per department and group of the viewer, as requested. Its source has these two columns, and
-- `columns` selects them if they exist.
create or replace macro downloads_of(source) as table
with viewer_downloads as (
    select
        period_of(occurred_at) as period_start,
        deployment,
        surface,
        format,
        columns(lambda name: name in ('target', 'department', 'group')),
        viewer,
        count(*) as download_count,
        sum(valid_row_count(row_count)) as exported_row_count
    from query_table(source)
    where type = 'download'
    group by all
)
select
    period_start,
    deployment,
    surface,
    format,
    columns(lambda name: name in ('target', 'department', 'group')),
    sum(download_count)::bigint as download_count,
    sum(exported_row_count)::bigint as exported_row_count,
    count(viewer) as viewer_count
from viewer_downloads
group by all
order by period_start, deployment, surface, format, columns(lambda name: name in ('target', 'department', 'group'));

create or replace view downloads_of_events as
from downloads_of('event_in_scope');

create or replace view downloads as
with counted as (
    from downloads_of('event_untotaled')
    union all by name
    select * exclude (day, tenant) from daily_download_in_scope
)
select
    period_start,
    deployment,
    surface,
    format,
    target,
    sum(counted.download_count)::bigint as download_count,
    sum(counted.exported_row_count)::bigint as exported_row_count,
    sole(counted.viewer_count) as viewer_count
from counted
group by period_start, deployment, surface, format, target
order by period_start, deployment, surface, format, target;

create or replace view downloads_by_directory as
from downloads_of('event_by_directory');

comment on view downloads is
'Downloads
What is exported, in which format, and by how many people?
One row per period, deployment, surface, format and target.';
comment on column downloads.period_start is 'Start of the hour, day, week (Monday) or month, in UTC.';
comment on column downloads.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column downloads.surface is 'Surface of the downloads.';
comment on column downloads.format is 'File format: csv, xlsx, png or pdf.';
comment on column downloads.target is 'Exported object: a widget, or the whole dashboard.';
comment on column downloads.download_count is 'Downloads.';
comment on column downloads.exported_row_count is
'Rows exported, summed over the downloads that have a row count; null when none has.';
comment on column downloads.viewer_count is 'Distinct viewers with a download in the period.';

comment on view downloads_of_events is 'The report downloads without daily totals.';

comment on view downloads_by_directory is 'The report downloads with the dimensions that `by` requests, for the requested people.';
comment on column downloads_by_directory.department is
'Department of the viewer in the directory; null without one, or unless `by` has `department`.';
comment on column downloads_by_directory."group" is
'Group of the viewer in the directory; null without one, or unless `by` has `group`. A viewer counts in each group, so rows do not add up.';

-- One row per download, oldest first. An impossible row count (negative, above a hundred billion, or with a fraction) is null,
-- as in `downloads`.
create or replace view download_audit as
select
    occurred_at,
    viewer,
    tenant,
    deployment,
    format,
    target,
    widget_id,
    title,
    valid_row_count(row_count)::bigint as exported_row_count,
    surface,
    session,
    page,
    ingest_seq
from event_in_scope
where type = 'download'
order by occurred_at, ingest_seq;

comment on view download_audit is
'Download log
Who exported what, when, and from where?
One row per download.';
comment on column download_audit.occurred_at is 'Time of the download, in UTC.';
comment on column download_audit.viewer is 'Viewer who exported; null when the host page named no viewer.';
comment on column download_audit.tenant is
'Tenant of the viewer; null when neither the host page nor the session''s ready event named one.';
comment on column download_audit.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column download_audit.format is 'File format: csv, xlsx, png or pdf.';
comment on column download_audit.target is 'Exported object: a widget, or the whole dashboard.';
comment on column download_audit.widget_id is
'Exported widget; null for a whole dashboard, or when the event has no widget id.';
comment on column download_audit.title is 'Title of the exported object.';
comment on column download_audit.exported_row_count is
'Rows exported; null when the event has no row count, as for images.';
comment on column download_audit.surface is 'Surface of the download.';
comment on column download_audit.session is 'Session of the viewer.';
comment on column download_audit.page is 'Page of the host that contains the embed.';
comment on column download_audit.ingest_seq is 'Position in the order of ingestion; a stable key for paging.';

-- One row per download, as it was told, oldest first. A row count below zero, beyond a hundred billion or with a fraction
-- can't be, and is null here as it is not summed in `downloads`.
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
'Downloads, one by one
Who exported what, when, and from where?
One row per download.';
comment on column download_audit.occurred_at is 'When it was exported, in UTC.';
comment on column download_audit.viewer is 'Viewer who exported; null when the host page named none.';
comment on column download_audit.tenant is
'Tenant of the viewer; null when neither the host page nor the session''s ready event named one.';
comment on column download_audit.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column download_audit.format is 'File format: csv, xlsx, png or pdf.';
comment on column download_audit.target is 'What was exported: a widget, or the whole dashboard.';
comment on column download_audit.widget_id is 'Widget that was exported; null for a whole dashboard, or when it was not told.';
comment on column download_audit.title is 'Title of what was exported.';
comment on column download_audit.exported_row_count is 'Rows exported; null when they were not told, as for images.';
comment on column download_audit.surface is 'Surface that was exported from.';
comment on column download_audit.session is 'Session of the viewer.';
comment on column download_audit.page is 'Page of the host that the embed stood on.';
comment on column download_audit.ingest_seq is 'Order of ingest_seq; a stable key for paging.';

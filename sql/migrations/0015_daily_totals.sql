-- The totals of days whose events the retention deletes: the rows of reports for one UTC day (docs/decisions/0034). In all tables
-- except daily_tenant, a null tenant means all tenants together.

-- One row per totaled day.
create table totaled_day (
    day        date,
    totaled_at timestamp
);

-- One row per day, tenant, deployment and surface with a view event.
create table daily_view (
    day           date,
    tenant        varchar,
    deployment    bigint,
    surface       varchar,
    view_count    bigint,
    session_count bigint,
    viewer_count  bigint
);

-- One row per day, tenant, deployment, surface, format and target with a download.
create table daily_download (
    day                date,
    tenant             varchar,
    deployment         bigint,
    surface            varchar,
    format             varchar,
    target             varchar,
    download_count     bigint,
    exported_row_count bigint,
    viewer_count       bigint
);

-- One row per day, tenant, deployment and surface with any event.
create table daily_error_rate (
    day                      date,
    tenant                   varchar,
    deployment               bigint,
    surface                  varchar,
    error_count              bigint,
    fatal_count              bigint,
    view_count               bigint,
    session_count            bigint,
    session_with_error_count bigint
);

-- One row per day, tenant, deployment, surface and agent with an AI query.
create table daily_ai_query (
    day                      date,
    tenant                   varchar,
    deployment               bigint,
    surface                  varchar,
    agent_id                 varchar,
    submitted_count          bigint,
    completed_count          bigint,
    error_count              bigint,
    abandoned_count          bigint,
    pending_count            bigint,
    completed_latency_p50_ms double,
    completed_latency_p95_ms double,
    latency_p50_ms           double,
    latency_p95_ms           double
);

-- One row per day, tenant, and deployment and surface or all of them (null) with any event. A null tenant means that the events
-- name none.
create table daily_tenant (
    day                        date,
    tenant                     varchar,
    deployment                 bigint,
    surface                    varchar,
    viewer_count               bigint,
    view_count                 bigint,
    first_seen_at              timestamp,
    last_seen_at               timestamp,
    seconds_to_first_value_p50 double
);

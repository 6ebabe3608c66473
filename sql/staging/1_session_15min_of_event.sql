-- One row per event of the store, without a scope: its key, counts and times in a row of session_15min. Before 2012, some UTC
-- offsets were not multiples of 15 minutes, so an event from before 2012 belongs to no interval.
create or replace macro session_15min_of_event() as table
select
    ingest_seq,
    occurred_at,
    if(
        occurred_at < timestamp '2012-01-01', occurred_at, time_bucket(interval 15 minutes, occurred_at)
    ) as began_at,
    key_id,
    deployment,
    tenant,
    digest_of(session) as session,
    digest_of(viewer) as viewer,
    surface,
    is_internal,
    vendor,
    1 as event_count,
    (type = 'view')::integer as view_count,
    (type = 'dashboard-loaded')::integer as loaded_count,
    (type = 'download')::integer as download_count,
    (type = 'drilldown')::integer as drilldown_count,
    (type = 'x-filter')::integer as filter_count,
    (type = 'ai-query' and status = 'submitted')::integer as ai_submitted_count,
    (type = 'ai-query' and status = 'completed')::integer as ai_completed_count,
    (type = 'ai-query' and status = 'error')::integer as ai_error_count,
    (type = 'error')::integer as error_count,
    (type = 'error' and coalesce(fatal, false))::integer as fatal_count,
    occurred_at as first_at,
    occurred_at as last_at,
    if(
        type in ('drilldown', 'download') or (type = 'ai-query' and status = 'completed'), occurred_at, null
    ) as first_value_at
from event;

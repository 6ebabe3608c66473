-- Adds the events of a batch to session_15min. Before 2012 time zones began their days at any minute, so events from before
-- 2012 are never added, and reports read them one by one.
insert into session_15min by name
select
    getvariable('batch_id')::bigint as batch_id,
    time_bucket(interval 15 minutes, occurred_at) as began_at,
    key_id,
    deployment,
    tenant,
    digest_of(session) as session,
    digest_of(viewer) as viewer,
    surface,
    count(*) as event_count,
    count(*) filter (type = 'view') as view_count,
    count(*) filter (type = 'dashboard-loaded') as loaded_count,
    count(*) filter (type = 'download') as download_count,
    count(*) filter (type = 'drilldown') as drilldown_count,
    count(*) filter (type = 'ai-query' and status = 'submitted') as ai_submitted_count,
    count(*) filter (type = 'ai-query' and status = 'completed') as ai_completed_count,
    count(*) filter (type = 'ai-query' and status = 'error') as ai_error_count,
    count(*) filter (type = 'error') as error_count,
    count(*) filter (type = 'error' and fatal) as fatal_count,
    min(occurred_at) as first_at,
    max(occurred_at) as last_at,
    min(occurred_at) filter (
        type in ('drilldown', 'download') or (type = 'ai-query' and status = 'completed')
    ) as first_value_at
from event
where ingest_seq between getvariable('rollup_from')::bigint and getvariable('rollup_to')::bigint
  and occurred_at >= timestamp '2012-01-01'
group by began_at, key_id, deployment, tenant, session, viewer, surface
-- Neighbours in time stay neighbours, so that a period reads little.
order by min(ingest_seq);

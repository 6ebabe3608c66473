-- One row per day, key, deployment, tenant and surface for which session_15min differs from the events. Reports read these
-- rollups.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the report, then
-- `embedsink rebuild`: it computes the rollups again.
with expected as (
    select
        occurred_at::date as day,
        key_id,
        deployment,
        tenant,
        surface,
        count(*)::bigint as event_count,
        count(*) filter (type = 'view') as view_count,
        count(*) filter (type = 'dashboard-loaded') as loaded_count,
        count(*) filter (type = 'download') as download_count,
        count(*) filter (type = 'drilldown') as drilldown_count,
        count(*) filter (type = 'ai-query') as stage_count,
        count(*) filter (type = 'error') as error_count,
        count(*) filter (type = 'error' and fatal) as fatal_count,
        -- Sessions and viewers, in one number.
        sum(hash(digest_of(session), digest_of(viewer)) % 1000000007)::hugeint as digest,
        min(occurred_at) as first_at,
        max(occurred_at) as last_at
    from event
    where ingest_seq <= (select max(watermark) from rollup_batch) and occurred_at >= timestamp '2012-01-01'
    group by all
),
stored as (
    select
        began_at::date as day,
        key_id,
        deployment,
        tenant,
        surface,
        sum(event_count)::bigint as event_count,
        sum(view_count)::bigint as view_count,
        sum(loaded_count)::bigint as loaded_count,
        sum(download_count)::bigint as download_count,
        sum(drilldown_count)::bigint as drilldown_count,
        sum(ai_submitted_count + ai_completed_count + ai_error_count)::bigint as stage_count,
        sum(error_count)::bigint as error_count,
        sum(fatal_count)::bigint as fatal_count,
        sum(event_count * (hash(session, viewer) % 1000000007))::hugeint as digest,
        min(first_at) as first_at,
        max(last_at) as last_at
    from session_15min
    group by all
)
select 'events' as only_in, * from (from expected except from stored)
union all
select 'rollups', * from (from stored except from expected)
order by day, key_id, deployment, tenant, surface, only_in;

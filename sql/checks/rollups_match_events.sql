-- One row per day, key, deployment, tenant, surface, is_internal and vendor for which session_15min differs from the events.
-- Reports read these rollups.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report, then
-- run `embedsink rebuild`: it computes the rollups again.
with rollup_row as (
    select 'events' as only_in, * exclude (ingest_seq, occurred_at)
    from session_15min_of_event()
    where ingest_seq <= (select max(watermark) from rollup_batch) and occurred_at >= timestamp '2012-01-01'
    union all by name
    select 'rollups' as only_in, * exclude (batch_id)
    from session_15min
),
daily_total as (
    select
        only_in,
        began_at::date as day,
        key_id,
        deployment,
        tenant,
        surface,
        is_internal,
        vendor,
        sum(columns('^(.*_count)$'))::bigint as '\1',
        -- A digest of sessions and viewers.
        sum(event_count * (hash(session, viewer) % 1000000007))::hugeint as digest,
        min(first_at) as first_at,
        max(last_at) as last_at,
        min(first_value_at) as first_value_at
    from rollup_row
    group by all
)
select any_value(only_in) as only_in, * exclude (only_in)
from daily_total
group by all
having count(*) = 1 -- A row that only one of the two has is a difference.
order by day, key_id, deployment, tenant, surface, is_internal, vendor, only_in;

-- One row per day, key, deployment, tenant, surface, is_internal and vendor for which question_stage differs from the events.
-- Reports read this table.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report, then
-- run `embedsink rebuild`: it computes the rollups again.
with stage as (
    select 'events' as only_in, *
    from question_stage_of_event()
    where ingest_seq <= (select max(watermark) from rollup_batch)
    union all by name
    select 'stages' as only_in, * exclude (batch_id)
    from question_stage
),
daily_total as (
    select
        only_in,
        occurred_at::date as day,
        key_id,
        deployment,
        tenant,
        surface,
        is_internal,
        vendor,
        count(*)::bigint as stage_count,
        -- A digest of all other columns.
        sum(
            hash(ingest_seq, occurred_at, session, viewer, seq, status, agent_id, question_key) % 1000000007
        )::hugeint as digest
    from stage
    group by all
)
select any_value(only_in) as only_in, * exclude (only_in)
from daily_total
group by all
having count(*) = 1 -- A row that only one of the two has is a difference.
order by day, key_id, deployment, tenant, surface, is_internal, vendor, only_in;

-- One row per day, key, deployment, tenant and surface for which question_stage differs from the events. Reports pair these
-- stages.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the report, then
-- `embedsink rebuild`: it computes the rollups again.
with expected as (
    select
        occurred_at::date as day,
        key_id,
        deployment,
        tenant,
        surface,
        count(*)::bigint as stage_count,
        -- The columns of the stages, in one number.
        sum(
            hash(
                ingest_seq, occurred_at, digest_of(session), viewer, seq, status, agent_id, question_key_of(session, chat_id, query)
            ) % 1000000007
        )::hugeint as digest
    from event
    where type = 'ai-query' and ingest_seq <= (select max(watermark) from rollup_batch)
    group by all
),
stored as (
    select
        occurred_at::date as day,
        key_id,
        deployment,
        tenant,
        surface,
        count(*)::bigint as stage_count,
        sum(hash(ingest_seq, occurred_at, session, viewer, seq, status, agent_id, question_key) % 1000000007)::hugeint as digest
    from question_stage
    group by all
)
select 'events' as only_in, * from (from expected except from stored)
union all
select 'stages', * from (from stored except from expected)
order by day, key_id, deployment, tenant, surface, only_in;

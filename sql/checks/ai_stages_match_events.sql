-- One row per day, key, deployment, tenant and surface of which the stages of AI queries that were summed up are not those of
-- the events. Reports pair these.
-- What to do: the store was changed by hand, or the loader has a bug. Keep a copy of the data folder for the report, then
-- `embedsink rebuild`: it makes all of them anew.
with told as (
    select
        occurred_at::date as day,
        key_id,
        deployment,
        tenant,
        surface,
        count(*)::bigint as stage_count,
        -- Which they are, in one number.
        sum(
            hash(
                ingest_seq, occurred_at, digest_of(session), viewer, seq, status, agent_id, question_key_of(session, chat_id, query)
            ) % 1000000007
        )::hugeint as which
    from event
    where type = 'ai-query' and ingest_seq <= (select max(watermark) from rollup_batch)
    group by all
),
kept as (
    select
        occurred_at::date as day,
        key_id,
        deployment,
        tenant,
        surface,
        count(*)::bigint as stage_count,
        sum(hash(ingest_seq, occurred_at, session, viewer, seq, status, agent_id, question_key) % 1000000007)::hugeint as which
    from question_stage
    group by all
)
select 'events' as only_in, * from (from told except from kept)
union all
select 'stages', * from (from kept except from told)
order by day, key_id, deployment, tenant, surface, only_in;

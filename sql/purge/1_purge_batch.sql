-- The oldest stored rejections to purge, at most `purge_count`: received before `purge_before`, for `purge_reason`, from the
-- key `purge_key`, and with an ingest_seq below `purge_below`. An unset variable limits nothing.
create or replace temp table purge_batch as
select quarantine_id, ingest_seq, key_id, deployment, reason, received_at, replayed_at
from quarantine
where (getvariable('purge_before') is null or received_at < getvariable('purge_before')::timestamp)
  and (getvariable('purge_reason') is null or reason = getvariable('purge_reason')::varchar)
  and (getvariable('purge_key') is null or key_id = getvariable('purge_key')::varchar)
  and (getvariable('purge_below') is null or ingest_seq < getvariable('purge_below')::bigint)
order by ingest_seq
limit (select getvariable('purge_count')::bigint);

-- Their counts, which load/13_rejection_count.sql adds to rejection_count. Senders with unscoped keys choose deployments, so only
-- the 100 most frequent of a key are counted separately; the others share null.
create or replace temp table counted_rejection as
with frequent as (
    select key_id, deployment
    from purge_batch
    where deployment is not null
    group by key_id, deployment
    qualify row_number() over (partition by key_id order by count(*) desc, deployment) <= 100
)
select
    key_id,
    frequent.deployment as deployment,
    reason,
    time_bucket(interval 15 minutes, received_at) as began_at,
    count(*) as rejected_count,
    count(replayed_at) as replayed_count,
    max(received_at) as last_received_at
from purge_batch
left join frequent using (key_id, deployment)
group by key_id, frequent.deployment, reason, began_at;

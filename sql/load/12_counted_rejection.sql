-- One row per key, deployment, reason and quarter of an hour: rejections that are only counted. The server counted them, or
-- they are conflicts beyond the limits of their key. The deployment of a conflict is unchecked, so it is null.
create or replace temp table counted_rejection as
with rejection as (
    select key_id, context.deployment as deployment, reason, received_at, rejected_count
    from line
    where kind = 'counted'
    union all by name
    select key_id, null as deployment, 'id_conflict' as reason, received_at, 1 as rejected_count
    from line
    where ingest_seq in (select ingest_seq from id_conflict)
      and ingest_seq not in (select ingest_seq from incoming_rejection)
)
select
    key_id,
    deployment,
    reason,
    time_bucket(interval 15 minutes, make_timestamp(received_at * 1000)) as began_at,
    sum(rejected_count)::bigint as rejected_count,
    0::bigint as replayed_count,
    max(make_timestamp(received_at * 1000)) as last_received_at
from rejection
group by all;

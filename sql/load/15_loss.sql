-- What forwarders had to give up. A sender without an answer tells its counts again, and by then they may have grown: so of
-- one id only what goes beyond the highest count before it is a row. What has no id counts each time.
insert into loss by name
with told as materialized (
    select
        *,
        id::uuid as loss_id,
        max(lost_count) over (
            partition by coalesce(id, ingest_seq::varchar)
            order by ingest_seq
            rows between unbounded preceding and 1 preceding
        ) as lost_count_before
    from line
    where kind = 'lost'
),
stored as (
    select loss_id, sum(lost_count) as lost_count
    from loss
    where ingest_seq >= getvariable('dedup_from')::bigint
      and loss_id in (select loss_id from told)
    group by loss_id
)
select
    told.ingest_seq,
    make_timestamp(told.received_at * 1000) as received_at,
    told.key_id,
    told.context.deployment as deployment,
    told.context.session as session,
    told.reason,
    (told.lost_count - greatest(told.lost_count_before, stored.lost_count, 0))::bigint as lost_count,
    told.loss_id
from told
left join stored using (loss_id)
where told.lost_count > greatest(told.lost_count_before, stored.lost_count, 0);

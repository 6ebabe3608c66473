-- Losses that forwarders report. A sender that gets no response reports its counts again, and they may have grown. So only the
-- increase over the highest earlier count of the same id becomes a row. A report without an id always counts.
insert into loss by name
with reported as materialized (
    select
        *,
        id::uuid as loss_id,
        max(lost_count) over (
            partition by coalesce(id, ingest_seq::varchar)
            order by ingest_seq
            rows between unbounded preceding and 1 preceding
        ) as earlier_lost_count
    from line
    where kind = 'lost'
),
stored as (
    select loss_id, sum(lost_count) as lost_count
    from loss
    where ingest_seq >= getvariable('dedup_from')::bigint
      and loss_id in (select loss_id from reported)
    group by loss_id
)
select
    reported.ingest_seq,
    make_timestamp(reported.received_at * 1000) as received_at,
    reported.key_id,
    reported.context.deployment as deployment,
    reported.context.session as session,
    reported.reason,
    (reported.lost_count - greatest(reported.earlier_lost_count, stored.lost_count, 0))::bigint as lost_count,
    reported.loss_id
from reported
left join stored using (loss_id)
where reported.lost_count > greatest(reported.earlier_lost_count, stored.lost_count, 0);

-- Losses that forwarders report. A forwarder that gets no response reports again, possibly with a higher count. So a row has
-- the increase over the highest earlier count of the same id. A report without an id always counts, and gets an id of its own, so that
-- an archive of several stores has it once.
insert into loss by name
with report as (
    select
        *,
        coalesce(id, md5(concat_ws(' ', key_id, received_at, ingest_seq)))::uuid as loss_id
    from line
    where kind = 'lost'
),
incoming_report as materialized (
    select
        *,
        max(lost_count) over (
            partition by loss_id
            order by ingest_seq
            rows between unbounded preceding and 1 preceding
        ) as earlier_lost_count
    from report
),
stored_loss as (
    select loss_id, sum(lost_count) as lost_count
    from loss
    where ingest_seq >= getvariable('dedup_from')::bigint
      and loss_id in (select loss_id from incoming_report)
    group by loss_id
)
select
    incoming_report.ingest_seq,
    make_timestamp(incoming_report.received_at * 1000) as received_at,
    incoming_report.key_id,
    incoming_report.context.deployment as deployment,
    incoming_report.context.session as session,
    incoming_report.reason,
    (incoming_report.lost_count - greatest(incoming_report.earlier_lost_count, stored_loss.lost_count, 0))::bigint as lost_count,
    incoming_report.loss_id
from incoming_report
left join stored_loss using (loss_id)
where incoming_report.lost_count > greatest(incoming_report.earlier_lost_count, stored_loss.lost_count, 0);

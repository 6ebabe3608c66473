-- One row per event, action and loss to archive: those with archive_from <= ingest_seq < archive_below in the period that the
-- archive lacks. The month is that of the event. Senders choose this time, so an event with a time of more than a year before its
-- receipt has the month of its receipt: otherwise a sender could cause a file for each month of 2,000 years.
create or replace temp table archive_row as
with stored as (
    select 'event' as kind, event_id as id, ingest_seq, occurred_at, received_at
    from event
    where ingest_seq >= getvariable('archive_from')::bigint and ingest_seq < getvariable('archive_below')::bigint
    union all
    select 'action', action_id, ingest_seq, occurred_at, received_at
    from action
    where ingest_seq >= getvariable('archive_from')::bigint and ingest_seq < getvariable('archive_below')::bigint
    union all
    select 'loss', loss_id, ingest_seq, received_at, received_at
    from loss
    where ingest_seq >= getvariable('archive_from')::bigint and ingest_seq < getvariable('archive_below')::bigint
)
select
    kind,
    ingest_seq,
    printf('%04d-%02d', year(filed_at), month(filed_at)) as month
from (select *, if(occurred_at >= received_at - interval 1 year, occurred_at, received_at) as filed_at from stored) as stored
where is_in_period(occurred_at)
  and not exists (
    select 1
    from archived_row as archived
    where archived.kind = stored.kind and archived.ingest_seq = stored.ingest_seq and archived.id is not distinct from stored.id
);

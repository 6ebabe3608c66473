-- One row per event, action and loss to archive: those with archive_from <= ingest_seq < archive_below beyond their retention, in the
-- period that the archive lacks. Without a retention limit, all of the period. The month is that of the event. Senders choose this time,
-- so an event with a time of more than a year before its receipt has the month of its receipt: otherwise a sender could cause a file for
-- each month of 2,000 years.
create or replace temp table archive_row as
with stored as (
    select
        kind,
        id,
        ingest_seq,
        occurred_at,
        if(occurred_at >= received_at - interval 1 year, occurred_at, received_at) as filed_at
    from row_beyond_retention(getvariable('archive_from')::bigint, getvariable('archive_below')::bigint)
)
select
    kind,
    ingest_seq,
    printf('%04d-%02d', year(filed_at), month(filed_at)) as month
from stored
where is_in_period(occurred_at)
  and not exists (
    select 1
    from archived_row as archived
    where archived.kind = stored.kind and archived.ingest_seq = stored.ingest_seq and archived.id is not distinct from stored.id
);

-- Selects the UTC days of the events to delete: those with an ingest_seq below `expire_below`.
create or replace temp table expiring_day as
select distinct occurred_at::date as day
from event
where ingest_seq < getvariable('expire_below')::bigint;

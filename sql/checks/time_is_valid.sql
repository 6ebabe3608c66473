-- One row per event or action whose times can't be: none, later than a minute after it was received, or received in the
-- future.
-- What to do: when received_at lies ahead, the server's clock was wrong for a while; mend the clock, the rows become
-- true as time goes by. Everything else is a bug in sql/load: report it, then `embedsink rebuild`.
select table_name, id, occurred_at, client_at, received_at, ingest_seq
from (
    select 'event' as table_name, event_id as id, occurred_at, client_at, received_at, ingest_seq from event
    union all
    select 'action', action_id, occurred_at, client_at, received_at, ingest_seq from action
)
where occurred_at is null
   or client_at is null
   or received_at is null
   or occurred_at > received_at + interval 1 minute
   or received_at > coalesce(getvariable('now')::timestamp, make_timestamp(epoch_us(now()))) + interval 1 hour
order by ingest_seq;

-- One row per event or action with an impossible time: missing, more than a minute after its receipt, or received more than
-- an hour in the future.
-- What to do: if received_at is in the future, the server's clock was wrong. Correct it. The rows become valid when that
-- time has passed. Otherwise sql/load has a bug: report it, then run `embedsink rebuild`.
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

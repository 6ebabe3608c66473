-- One row per id of more than one event, or of more than one action, and one for all events or actions without an id.
-- What to do: compare the times of receipt. If they are weeks apart, a sender resent its events after the deduplication window:
-- raise EMBEDSINK_DEDUP_DAYS. Otherwise the loader has a bug: report it, then run `embedsink rebuild`.
select
    table_name,
    id,
    count(*) as row_count,
    min(received_at) as first_received_at,
    max(received_at) as last_received_at,
    min(ingest_seq) as first_ingest_seq,
    max(ingest_seq) as last_ingest_seq
from (
    select 'event' as table_name, event_id as id, received_at, ingest_seq from event
    union all
    select 'action', action_id, received_at, ingest_seq from action
)
group by table_name, id
having count(*) > 1 or id is null
order by table_name, id;

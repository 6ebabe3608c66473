-- One row per accepted event and action: a delivery with this one envelope as JSON, which `embedsink import` turns into the
-- same row. Events first, each table in its own order. Not limited by scope: it is for the owner of the data folder. If the
-- variable `viewers` is set, only those of the requested person.
create or replace view event_export as
select
    '{"receivedAt":' || epoch_ms(received_at)
    || coalesce(',"sentAt":' || milliseconds_of(sent_at)::varchar, '')
    || ',"context":' || context
    || ',"events":[' || envelope || ']}' as delivery
from envelope_json
where getvariable('viewers') is null or ingest_seq in (select ingest_seq from person_envelope);

comment on view event_export is
'Accepted events and actions as deliveries in JSON, for `embedsink export` and `embedsink import`.';

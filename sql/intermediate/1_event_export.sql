-- One row per accepted event and action: a delivery of this one envelope as JSON, which `embedsink import` takes back to
-- the same row. Events first, each table in its own order. Never scoped: it is for the owner of the data folder.
create or replace view event_export as
select
    '{"receivedAt":' || epoch_ms(received_at)
    || coalesce(',"sentAt":' || milliseconds_of(sent_at)::varchar, '')
    || ',"context":' || context
    || ',"events":[' || envelope || ']}' as delivery
from envelope_json;

comment on view event_export is
'Every accepted event and action as a delivery in JSON, for `embedsink export`; `embedsink import` takes it back.';

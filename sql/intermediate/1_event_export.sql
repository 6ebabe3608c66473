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
where getvariable('viewers') is null
   or ingest_seq in (
       select envelope.ingest_seq
       from (
           select ingest_seq, key_id, session, viewer, deployment, tenant from event
           union all
           select ingest_seq, key_id, session, viewer, deployment, tenant from action
       ) as envelope
       left join session_context_between(null, null) as context using (key_id, session)
       where is_of_person(
           viewer, coalesce(envelope.deployment, context.deployment), coalesce(envelope.tenant, context.tenant)
       )
   );

comment on view event_export is
'Accepted events and actions as deliveries in JSON, for `embedsink export` and `embedsink import`.';

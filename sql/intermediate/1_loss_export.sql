-- One row per loss, in the order of the table: a delivery in JSON without events, which `embedsink import` turns into the same
-- row. A report that was repeated with a higher count has several rows with increases. A delivery has the count up to its row, as
-- the forwarder reported it. Not limited by scope: it is for the owner of the data folder.
create or replace view loss_export as
select
    '{"receivedAt":' || epoch_ms(received_at)
    || coalesce(',"lossId":"' || loss_id || '"', '')
    || ',"context":' || json_merge_patch('{}', {deployment: deployment, session: session}::json)
    || ',"events":[],"lost":' || json_object(
        reason,
        sum(lost_count) over (partition by coalesce(loss_id::varchar, ingest_seq::varchar) order by ingest_seq)::bigint
    )
    || '}' as delivery
from loss
order by ingest_seq;

comment on view loss_export is 'Reported losses as deliveries in JSON, for the import of an archive.';

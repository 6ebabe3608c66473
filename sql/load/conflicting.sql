-- Envelopes whose id was taken by other content, as they were sent. It reads the segments again, so it runs only where
-- `conflict` has rows.
insert into rejected by name
with sent as (
    select getvariable('arrival_base')[filename] + row_number() over () as arrival, envelope
    from read_json(
        getvariable('segment_paths'),
        filename = true,
        format = 'newline_delimited',
        maximum_object_size = getvariable('line_bytes_max')::bigint,
        columns = {envelope: 'json'}
    )
)
select
    md5(conflict.id || ':' || arrival)::uuid as quarantine_id,
    arrival,
    received_timestamp as received_at,
    sent_timestamp as sent_at,
    key_id,
    context.deployment as deployment,
    context.session as session,
    context.viewer as viewer,
    context.tenant as tenant,
    context.page as page,
    'id_conflict' as reason,
    'id: ' || conflict.id || ' was seen before with other content. Make a new id for each event.' as detail,
    -- What the catalog does not know lies beside the envelope; here it goes back to where it stood.
    json_merge_patch(
        sent.envelope,
        json_object('payload', coalesce(incoming_envelope.extra, '{}'::json)),
        coalesce(incoming_envelope.envelope_extra, '{}'::json)
    )::varchar as raw
from sent
join (conflict join incoming_envelope using (arrival)) using (arrival);

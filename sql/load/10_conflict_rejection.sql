-- Envelopes whose id was received before with different content, as they were sent, within the quarantine limits of their key
-- and UTC day (quarantine_bytes_per_day, quarantine_count_per_day). Beyond the limits, or if keeps_conflicts is false, they
-- are only counted (12_counted_rejection). This file parses the segments again, so it runs only if id_conflict has rows.
insert into incoming_rejection by name
with used_quota as (
    select key_id, received_at::date as day, sum(raw_length + 256)::bigint as byte_count, count(*) as row_count
    from quarantine
    where received_at >= (select min(received_timestamp)::date from incoming_envelope semi join id_conflict using (ingest_seq))
    group by key_id, day
),
sent_envelope as (
    select getvariable('ingest_seq_base')[filename] + row_number() over () as ingest_seq, envelope
    from read_json(
        getvariable('segment_paths'),
        filename = true,
        format = 'newline_delimited',
        maximum_object_size = getvariable('line_bytes_max')::bigint,
        columns = {envelope: 'json'}
    )
),
conflicting as (
    select
        md5(id_conflict.id || ':' || ingest_seq)::uuid as quarantine_id,
        ingest_seq,
        received_timestamp as received_at,
        sent_timestamp as sent_at,
        key_id,
        context.deployment as deployment,
        context.session as session,
        context.viewer as viewer,
        context.tenant as tenant,
        context.page as page,
        context.vendor as vendor,
        'id_conflict' as reason,
        'id: ' || id_conflict.id || ' was received before with different content. Create a new id for each event.' as detail,
        -- Puts unknown fields, which the journal stores separately, back into the envelope.
        json_merge_patch(
            sent_envelope.envelope,
            json_object('payload', coalesce(incoming_envelope.extra, '{}'::json)),
            coalesce(incoming_envelope.envelope_extra, '{}'::json)
        )::varchar as raw
    from sent_envelope
    join (id_conflict join incoming_envelope using (ingest_seq)) using (ingest_seq)
)
select conflicting.*
from conflicting
left join used_quota on used_quota.key_id = conflicting.key_id and used_quota.day = conflicting.received_at::date
where getvariable('keeps_conflicts')::boolean
window so_far as (partition by conflicting.key_id, conflicting.received_at::date order by conflicting.ingest_seq)
qualify coalesce(used_quota.byte_count, 0) + sum(length(raw) + 256) over so_far <= getvariable('quarantine_bytes_per_day')::bigint
   and coalesce(used_quota.row_count, 0) + count(*) over so_far <= getvariable('quarantine_count_per_day')::bigint;

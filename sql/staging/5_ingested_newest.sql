-- One row per event, action and stored rejection in scope (ingested_in_scope): the newest row_limit (at most 100), oldest
-- first, each with its envelope. The envelope of an accepted row comes from the store; that of a rejection is the first 16,384
-- characters of its text. The rows are chosen first, so that no other text is read.
create or replace view ingested_newest as
with newest as (
    select *
    from ingested_in_scope
    order by ingest_seq desc
    limit (select least(coalesce(getvariable('row_limit')::bigint, 100), 100))
),
sent as (
    select ingest_seq, envelope, length(envelope) as envelope_length, null::varchar as envelope_encoding
    from envelope_json
    where ingest_seq in (select ingest_seq from newest where outcome = 'accepted')
    union all
    select ingest_seq, raw, raw_length, raw_encoding
    from quarantine
    where ingest_seq in (select ingest_seq from newest where outcome = 'quarantined')
)
select
    ingest_seq,
    outcome,
    direction,
    type,
    id,
    received_at,
    key_id,
    deployment,
    session,
    viewer,
    tenant,
    page,
    vendor,
    surface,
    seq,
    reason,
    detail,
    -- The detail begins with the path (embedsink.protocol.error_messages).
    if(outcome = 'quarantined', nullif(regexp_extract(detail, '^([^ :]{1,128}): ', 1), ''), null) as path,
    replayed_at,
    envelope,
    envelope_length,
    envelope_encoding
from newest
join sent using (ingest_seq)
order by ingest_seq;

comment on view ingested_newest is 'The newest events, actions and stored rejections in scope, each with its envelope.';

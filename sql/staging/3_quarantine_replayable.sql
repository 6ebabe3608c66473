-- One row per stored rejection that a replay tries, oldest first: it has not been replayed yet, and may be valid now. If
-- `quarantine_id` is set, only that rejection. The rows are a batch: at most 64 rejections after the ingest_seq `after`, until
-- their texts have 262,144 characters in total. Times are epoch milliseconds. `raw` is the whole text.
create or replace view quarantine_replayable as
with candidate as (
    select ingest_seq, quarantine_id, raw_length
    from quarantine
    where replayed_at is null
      and is_replayable(reason)
      and whole_bytes is null
      and ingest_seq > coalesce(getvariable('after')::bigint, -1)
      and (getvariable('quarantine_id') is null or quarantine_id = getvariable('quarantine_id')::uuid)
    order by ingest_seq
    limit 64
),
batch as (
    select ingest_seq, quarantine_id
    from candidate
    qualify sum(raw_length) over (order by ingest_seq) - raw_length < 262144
),
rest as (
    select quarantine_id, string_agg(raw, '' order by piece) as raw
    from quarantine_rest
    where quarantine_id in (select quarantine_id from batch)
    group by quarantine_id
)
select
    quarantine_id,
    ingest_seq,
    epoch_ms(received_at) as received_at_ms,
    milliseconds_of(sent_at) as sent_at_ms,
    key_id,
    deployment,
    session,
    viewer,
    tenant,
    page,
    vendor,
    quarantine.raw || coalesce(rest.raw, '') as raw,
    raw_encoding
from quarantine
left join rest using (quarantine_id)
where ingest_seq in (select ingest_seq from batch)
order by ingest_seq;

comment on view quarantine_replayable is 'Stored rejections that a replay tries, oldest first.';

-- The rejections of these segments, except duplicates: each import of a file produces the same rejection ids. These ids have
-- the same deduplication window as the ids of events.
insert into incoming_rejection by name
with repeated_id as (
    select quarantine_id
    from quarantine
    where ingest_seq >= getvariable('dedup_from')::bigint
      and quarantine_id in (select quarantine_id::uuid from line where kind = 'quarantined')
)
select
    quarantine_id::uuid as quarantine_id,
    ingest_seq,
    make_timestamp(received_at * 1000) as received_at,
    instant_of(sent_at) as sent_at,
    key_id,
    context.deployment as deployment,
    context.session as session,
    context.viewer as viewer,
    context.tenant as tenant,
    context.page as page,
    context.vendor as vendor,
    "index",
    reason,
    detail,
    raw,
    raw_encoding,
    whole_bytes,
    whole_sha256
from line
where kind = 'quarantined'
  and quarantine_id::uuid not in (from repeated_id)
qualify row_number() over (partition by quarantine_id order by ingest_seq) = 1;

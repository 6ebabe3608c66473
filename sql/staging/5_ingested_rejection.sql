-- One row per kept rejection in scope (ingested_in_scope), oldest first, at most row_limit (and 1,000) of them: what a test of
-- a host page wants to know of it, without its text.
create or replace view ingested_rejection as
select
    id as quarantine_id,
    received_at,
    direction,
    type,
    session,
    deployment,
    reason,
    -- Where: a detail begins with it (embedsink.envelope.sentences).
    nullif(regexp_extract(detail, '^([^ :]{1,128}): ', 1), '') as path,
    detail,
    replayed_at
from ingested_in_scope
where outcome = 'quarantined'
order by ingest_seq
limit (select least(coalesce(getvariable('row_limit')::bigint, 1000), 1000));

comment on view ingested_rejection is 'The kept rejections in scope, oldest first, for whoever tests what they send.';

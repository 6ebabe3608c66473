-- One row per stored rejection in scope (ingested_in_scope), oldest first, without its text. At most row_limit
-- rows, and never more than 1,000. For tests of a host page.
create or replace view ingested_rejection as
select
    id as quarantine_id,
    received_at,
    direction,
    type,
    session,
    deployment,
    reason,
    -- The detail begins with the path (embedsink.protocol.error_messages).
    nullif(regexp_extract(detail, '^([^ :]{1,128}): ', 1), '') as path,
    detail,
    replayed_at
from ingested_in_scope
where outcome = 'quarantined'
order by ingest_seq
limit (select least(coalesce(getvariable('row_limit')::bigint, 1000), 1000));

comment on view ingested_rejection is 'Stored rejections in scope, oldest first, for tests of a host page.';

-- Deletes the fields that are not in the protocol, of at most `expire_at_once` events and actions with an ingest_seq below
-- `expire_below`.
create or replace temp table row_with_extra as
select ingest_seq
from (
    select ingest_seq, extra, envelope_extra from event
    union all
    select ingest_seq, extra, envelope_extra from action
)
where ingest_seq < getvariable('expire_below')::bigint and (extra is not null or envelope_extra is not null)
limit getvariable('expire_at_once')::bigint;

update event
set extra = null, envelope_extra = null
where ingest_seq in (select ingest_seq from row_with_extra);

update action
set extra = null, envelope_extra = null
where ingest_seq in (select ingest_seq from row_with_extra);

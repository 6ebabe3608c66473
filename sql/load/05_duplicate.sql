-- One row per envelope with a known id: the id of an earlier envelope in these segments, or of a stored envelope that
-- sql/deduplication has found.
create or replace temp table duplicate_line as
with incoming as (
    select kind, id, ingest_seq, row_number() over (partition by kind, id order by ingest_seq) as occurrence
    from incoming_line
    where kind in ('event', 'action')
)
select kind, id, ingest_seq, occurrence
from incoming
where occurrence > 1 or (kind, id) in (select (kind, id) from stored_id);

-- Duplicate ids with different content: 08_id_conflict.sql fills it.
create or replace temp table id_conflict (ingest_seq bigint, id uuid);

-- Complete rejections: 09_incoming_rejection.sql and 10_conflict_rejection.sql fill it.
create or replace temp table incoming_rejection as
select * exclude (raw_length, replayed_at) from quarantine limit 0;

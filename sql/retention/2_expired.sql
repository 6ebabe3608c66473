-- One row per event, action and loss to delete: those with expire_from <= ingest_seq < expire_below beyond their retention.
create or replace temp table expired as
select kind, ingest_seq, key_id, session, seq, deployment
from row_beyond_retention(getvariable('expire_from')::bigint, getvariable('expire_below')::bigint);

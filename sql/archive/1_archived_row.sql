-- One row per row of the archive in the range to archive. store/archive_rows.py inserts them.
create or replace temp table archived_row (kind varchar, ingest_seq bigint, id uuid);

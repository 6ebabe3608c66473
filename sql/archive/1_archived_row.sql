-- One row per row that the archive already has, among those with the ingest_seq of a row to archive. store/archive_rows.py inserts them.
create or replace temp table archived_row (kind varchar, ingest_seq bigint, id uuid);

-- One row per row that files of the archive contain, of those with an ingest_seq like the rows to archive. Python fills it.
create or replace temp table archived_row (kind varchar, ingest_seq bigint, id uuid);

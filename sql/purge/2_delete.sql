-- Deletes the rows of purge_batch from the quarantine, and selects them for ledger/count_removed.sql.
create or replace temp table removed_row as
select ingest_seq, 'counted_only_count' as counted_in from purge_batch;

delete from quarantine_rest where quarantine_id in (select quarantine_id from purge_batch);

delete from quarantine where ingest_seq in (select ingest_seq from purge_batch);

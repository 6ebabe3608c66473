-- Deletes the rows of purge_batch from the quarantine, and counts them in their ledgers.
update loaded_segment
set counted_only_count = coalesce(counted_only_count, 0) + purged.row_count
from (
    select ledger.segment, count(*) as row_count
    from purge_batch
    join loaded_segment as ledger
        on purge_batch.ingest_seq >> 32 between
            coalesce(ledger.first_number, split_part(ledger.segment, '-', 1)::bigint)
            and split_part(ledger.segment, '-', 1)::bigint
    group by ledger.segment
) as purged
where loaded_segment.segment = purged.segment;

delete from quarantine_rest where quarantine_id in (select quarantine_id from purge_batch);

delete from quarantine where ingest_seq in (select ingest_seq from purge_batch);

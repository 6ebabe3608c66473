-- Delete the rows of `purged` from the quarantine, and count them in their ledgers, each of one segment or of many old ones.
update loaded_segment
set unkept_count = coalesce(unkept_count, 0) + gone.row_count
from (
    select ledger.segment, count(*) as row_count
    from purged
    join loaded_segment as ledger
        on purged.arrival >> 32 between
            coalesce(ledger.first_number, split_part(ledger.segment, '-', 1)::bigint)
            and split_part(ledger.segment, '-', 1)::bigint
    group by ledger.segment
) as gone
where loaded_segment.segment = gone.segment;

delete from quarantine_rest where quarantine_id in (select quarantine_id from purged);

delete from quarantine where arrival in (select arrival from purged);

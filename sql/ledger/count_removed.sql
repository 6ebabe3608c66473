-- Counts the rows of the temporary table removed_row in their ledgers. Each row has an ingest_seq and the name of a column of
-- loaded_segment.
create or replace temp table changed_ledger as
with removed as (
    select
        ledger.segment,
        count(*) filter (counted_in = 'deleted_count') as deleted_count,
        count(*) filter (counted_in = 'deleted_rejection_count') as deleted_rejection_count,
        count(*) filter (counted_in = 'counted_only_count') as counted_only_count
    from removed_row
    join loaded_segment as ledger
        on removed_row.ingest_seq >> 32 between
            coalesce(ledger.first_number, split_part(ledger.segment, '-', 1)::bigint)
            and split_part(ledger.segment, '-', 1)::bigint
    group by ledger.segment
)
select
    ledger.* replace (
        -- Null remains null if nothing is added.
        coalesce(ledger.deleted_count + removed.deleted_count, nullif(removed.deleted_count, 0)) as deleted_count,
        coalesce(
            ledger.deleted_rejection_count + removed.deleted_rejection_count, nullif(removed.deleted_rejection_count, 0)
        ) as deleted_rejection_count,
        coalesce(
            ledger.counted_only_count + removed.counted_only_count, nullif(removed.counted_only_count, 0)
        ) as counted_only_count
    )
from loaded_segment as ledger
join removed using (segment);

delete from loaded_segment where segment in (select segment from changed_ledger);

insert into loaded_segment by name from changed_ledger;

drop table changed_ledger;

drop table removed_row;

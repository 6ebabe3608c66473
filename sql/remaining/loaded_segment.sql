-- The ledgers, with the numbers of erased envelopes and rejections.
select
    loaded_segment.* replace (
        if(erased.accepted_count > 0, coalesce(deleted_count, 0) + erased.accepted_count, deleted_count) as deleted_count,
        if(
            erased.rejection_count > 0,
            coalesce(deleted_rejection_count, 0) + erased.rejection_count,
            deleted_rejection_count
        ) as deleted_rejection_count
    )
from loaded_segment
left join erased_of_ledger as erased using (segment)
order by segment;

-- One row per ledger with an impossible value: a missing or negative count, a missing or invalid name, no time of loading, a
-- first_number that is not below the last number, a counted_only_count above quarantined_count, a
-- deleted_count above accepted_count, or a deleted_rejection_count above quarantined_count.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report,
-- then run `embedsink rebuild`.
select *
from loaded_segment
where segment is null
   or not regexp_matches(segment, '^\d{12}-')
   or loaded_at is null
   or coalesce(least(byte_count, received_count, accepted_count, duplicate_count, quarantined_count), -1) < 0
   or lost_count < 0
   or first_number >= split_part(segment, '-', 1)::bigint
   or deleted_count not between 0 and accepted_count
   or counted_only_count not between 0 and quarantined_count
   or deleted_rejection_count not between 0 and quarantined_count
   or byte_count is null
   or received_count is null
   or accepted_count is null
   or duplicate_count is null
   or quarantined_count is null
order by segment;

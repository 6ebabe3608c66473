-- One row per ledger with a segment number that an earlier ledger has too: the segment was loaded more than once.
-- What to do: two servers wrote into one data folder, or a segment was renamed. Save a copy of the data folder for the bug
-- report, then run `embedsink rebuild`.
with ledger as (
    select segment, split_part(segment, '-', 1)::bigint as last_number, coalesce(first_number, last_number) as from_number
    from loaded_segment
)
select from_number as segment_number, segment
from ledger
qualify from_number <= max(last_number) over (
    order by from_number, segment
    rows between unbounded preceding and 1 preceding
)
order by segment_number;

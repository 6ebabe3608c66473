-- One row per gap in the numbers of the loaded segments: the segments in it were damaged or lost.
-- What to do: look in damaged/. Repair the segment, or accept the loss; this row remains as its record.
with ledger as (
    select split_part(segment, '-', 1)::bigint as last_number, coalesce(first_number, last_number) as from_number
    from loaded_segment
)
select
    lag(last_number) over (order by from_number) + 1 as first_missing_number,
    from_number - 1 as last_missing_number
from ledger
qualify last_missing_number >= first_missing_number
order by from_number;

-- One row per gap in the numbers of the loaded segments, which follow each other: what lay there was set aside, or lost.
-- What to do: look into damaged/. Mend the segment, or accept the loss: this row stays the record of it.
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

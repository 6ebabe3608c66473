-- One row per gap in the numbers of the loaded segments, which follow each other: what lay there was set aside, or lost.
-- What to do: look into aside/. Mend the segment, or accept the loss: this row stays the record of it.
with numbered as (
    select distinct split_part(segment, '-', 1)::bigint as segment_number
    from loaded_segment
)
select
    lag(segment_number) over (order by segment_number) + 1 as first_missing_number,
    segment_number - 1 as last_missing_number
from numbered
qualify segment_number > first_missing_number
order by segment_number;

-- One row per segment number that was loaded more than once.
-- What to do: two servers wrote into one data folder, or a segment was renamed. Keep a copy of the data folder for the
-- report, then `embedsink rebuild`.
select split_part(segment, '-', 1)::bigint as segment_number, count(*) as load_count, list(segment) as segments
from loaded_segment
group by segment_number
having count(*) > 1
order by segment_number;

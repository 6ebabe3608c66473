-- One row per id that more than one kept rejection has.
-- What to do: a segment was loaded twice, see segment_is_loaded_once; then `embedsink rebuild`.
select quarantine_id, count(*) as row_count, min(arrival) as first_arrival, max(arrival) as last_arrival
from quarantine
group by quarantine_id
having count(*) > 1
order by first_arrival;

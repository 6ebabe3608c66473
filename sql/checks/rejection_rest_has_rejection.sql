-- One row per id in quarantine_rest without a row in quarantine.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report,
-- then run `embedsink rebuild`.
select quarantine_id, count(*) as piece_count
from quarantine_rest
where not exists (select 1 from quarantine where quarantine.quarantine_id = quarantine_rest.quarantine_id)
group by quarantine_id
order by quarantine_id;

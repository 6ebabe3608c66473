-- One row per id of more than one stored rejection.
-- What to do: a segment was loaded twice, see segment_is_loaded_once; then run `embedsink rebuild`.
select quarantine_id, count(*) as row_count, min(ingest_seq) as first_ingest_seq, max(ingest_seq) as last_ingest_seq
from quarantine
group by quarantine_id
having count(*) > 1
order by first_ingest_seq;

-- The rows of `question_stage` without those of erased people. The limit makes DuckDB read in one thread, so the rows keep their order.
from (from question_stage limit 9223372036854775807)
where ingest_seq not in (select ingest_seq from erased_envelope);

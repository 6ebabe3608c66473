-- The rows of `quarantine` without those of erased people. The limit makes DuckDB read in one thread, so the rows keep their order.
from (from quarantine limit 9223372036854775807)
where quarantine_id not in (select quarantine_id from erased_rejection);

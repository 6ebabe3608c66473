-- The rows of `loss` without those of erased people. The limit makes DuckDB read in one thread, so the rows keep their order.
from (from loss limit 9223372036854775807)
where session is null or (key_id, session) not in (from erased_session);

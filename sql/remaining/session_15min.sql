-- The rows of `session_15min` without those of erased people. The limit makes DuckDB read in one thread, so the rows keep their order.
from (from session_15min limit 9223372036854775807) as rollup
anti join erased_rollup
    on rollup.key_id is not distinct from erased_rollup.key_id
    and rollup.session is not distinct from erased_rollup.session
    and rollup.viewer is not distinct from erased_rollup.viewer
    and rollup.deployment is not distinct from erased_rollup.deployment
    and rollup.tenant is not distinct from erased_rollup.tenant;

-- The rows of `quarantine_rest` without those of erased people.
from (from quarantine_rest limit 9223372036854775807)
where quarantine_id not in (select quarantine_id from erased_rejection);

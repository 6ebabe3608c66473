-- One row per loss that is none: nothing was given up, or nobody says why, when or by whom.
-- What to do: envelope validation let through what it should have refused: report it. Until then the completeness report
-- leaves it out.
select ingest_seq, received_at, key_id, deployment, reason, lost_count
from loss
where lost_count is null
   or lost_count <= 0
   or reason is null
   or received_at is null
   or key_id is null
order by ingest_seq;

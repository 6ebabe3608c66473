-- One row per loss without a positive count, a reason, a time of receipt or a key.
-- What to do: envelope validation has a bug. Report it. The completeness report omits losses without a positive count.
select ingest_seq, received_at, key_id, deployment, reason, lost_count
from loss
where lost_count is null
   or lost_count <= 0
   or reason is null
   or received_at is null
   or key_id is null
order by ingest_seq;

-- Adds the temporary table counted_rejection to rejection_count: one row per key, deployment, reason and quarter of an hour.
update rejection_count
set
    rejected_count = rejection_count.rejected_count + counted_rejection.rejected_count,
    replayed_count = rejection_count.replayed_count + counted_rejection.replayed_count,
    last_received_at = greatest(rejection_count.last_received_at, counted_rejection.last_received_at)
from counted_rejection
where (rejection_count.key_id, rejection_count.reason, rejection_count.began_at)
    = (counted_rejection.key_id, counted_rejection.reason, counted_rejection.began_at)
  and rejection_count.deployment is not distinct from counted_rejection.deployment;

insert into rejection_count by name
select *
from counted_rejection
where not exists (
    select 1
    from rejection_count as known
    where (known.key_id, known.reason, known.began_at) = (counted_rejection.key_id, counted_rejection.reason, counted_rejection.began_at)
      and known.deployment is not distinct from counted_rejection.deployment
);

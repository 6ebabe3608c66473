-- One row per rejection in scope that is kept, and per count of those that are not: how many, whose, why, and how many were
-- replayed. Counts name no tenant, so they are seen only where no tenant is asked for; their time is that of their quarter of
-- an hour. A variable that nobody set is null, and bounds nothing.
create or replace view rejection_count_in_scope as
select
    received_at,
    reason,
    1 as rejected_count,
    (replayed_at is not null)::bigint as replayed_count,
    received_at as last_received_at
from rejection_in_scope
union all by name
select began_at as received_at, reason, rejected_count, replayed_count, last_received_at
from rejection_count
where is_in_deployments(deployment)
  and is_in_period(began_at)
  and is_of_tenant(null);

comment on view rejection_count_in_scope is 'Every rejection in scope, kept or only counted: when, why, and how many were replayed.';

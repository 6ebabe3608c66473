-- One row per stored rejection in scope, and per count of rejections that are not stored. Counts have no tenant and no vendor, so
-- they are visible only without these in the scope. Their time is the start of their quarter of an hour.
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
  and is_in_tenants(null)
  and is_in_period(began_at)
  and is_of_tenant(null)
  and is_of_vendor(null);

comment on view rejection_count_in_scope is
'Rejections in scope, stored or only counted: time, reason, and how many a replay accepted.';

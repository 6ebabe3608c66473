-- What the macro of this name has while no event lacks what a `ready` says: the deployment and tenant are the event's own.
create or replace macro event_between(first_at, end_at, is_any_tenant := false) as table
from event
where is_between(occurred_at, first_at, end_at)
  and is_in_deployments(deployment)
  and (is_any_tenant or is_of_tenant(tenant));

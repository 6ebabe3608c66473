-- One row per event in the scope of the key, at any time, on any surface and of any of the key's tenants. For views that relate events to
-- each other and filter by tenant and surface afterwards, so that the relation does not depend on the filter.
create or replace view event_of_any_tenant as
from event_between(null::timestamp, null::timestamp, is_any_tenant := true);

comment on view event_of_any_tenant is 'Events of the deployments in scope, at any time, on any surface and of any tenant.';

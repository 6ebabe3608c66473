-- One row per event of the deployments in scope, whatever its time, surface and tenant (see the macro event_between). For
-- views that relate events to each other: the relation is the same whichever tenant or surface is asked for, so they relate
-- first and filter afterwards.
create or replace view event_of_any_tenant as
from event_between(null::timestamp, null::timestamp, is_any_tenant := true);

comment on view event_of_any_tenant is
'Every event of the deployments in scope, whatever its time, surface and tenant.';

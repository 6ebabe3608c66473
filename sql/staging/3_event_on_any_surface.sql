-- One row per event in scope, whatever its time and surface, with its deployment and tenant resolved (see the macro
-- event_between).
create or replace view event_on_any_surface as
from event_between(null::timestamp, null::timestamp);

comment on view event_on_any_surface is
'Every event in scope, whatever its time and surface, with the deployment and tenant that its session''s ready event supplies.';

-- One row per event in scope, at any time and on any surface.
create or replace view event_on_any_surface as
from event_between(null::timestamp, null::timestamp);

comment on view event_on_any_surface is
'Events in scope, at any time and on any surface, with the deployment and tenant of their session''s ready event.';

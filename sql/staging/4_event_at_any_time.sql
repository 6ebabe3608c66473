-- One row per event in scope, of any time: deployments, tenant and surface.
create or replace view event_at_any_time as
select *
from event_on_any_surface
where is_on_surface(surface);

comment on view event_at_any_time is
'Events in scope, of any time, with the deployment and tenant of their session''s ready event.';

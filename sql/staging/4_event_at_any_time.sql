-- One row per event in scope (deployments, tenant and surface), at any time.
create or replace view event_at_any_time as
select *
from event_on_any_surface
where is_on_surface(surface);

comment on view event_at_any_time is
'Events in scope, at any time, with the deployment and tenant of their session''s ready event.';

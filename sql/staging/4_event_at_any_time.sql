-- One row per event in scope, whatever its time: its deployment and tenant (event_on_any_surface), and its surface.
-- A variable that nobody set is null, and bounds nothing.
create or replace view event_at_any_time as
select *
from event_on_any_surface
where is_on_surface(surface);

comment on view event_at_any_time is
'Every event in scope, whatever its time, with the deployment and tenant that its session''s ready event supplies.';

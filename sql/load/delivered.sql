-- What the segment delivers: one row per event or action.
create or replace temp view delivered as
select kind, id, received_at from arrived where kind in ('event', 'action');

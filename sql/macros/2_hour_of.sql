-- The start of the local hour of a timestamp (UTC), by elapsed time: when summer time ends, local clocks show an hour twice,
-- and both are separate hours.
create or replace macro hour_of(instant) as
instant - (wall_clock(instant) - date_trunc('hour', wall_clock(instant)));

-- The last full hour that the clocks showed before an instant (UTC), by what has passed since: the wall clock shows an
-- hour twice when summer ends, and both are hours of their own.
create or replace macro hour_of(instant) as
instant - (wall_clock(instant) - date_trunc('hour', wall_clock(instant)));

-- The time between two consecutive events of a session, in microseconds, if it counts as time spent: 0 where it is longer than
-- the variable session_gap_minutes (30 by default) and where there is no earlier event. The variable is 15 or more, so each
-- gap within a quarter of an hour counts, and session_15min_in_scope is enough to add the gaps up.
create or replace macro active_us(earlier_at, later_at) as
if(
    epoch_us(later_at) - epoch_us(earlier_at) <= coalesce(getvariable('session_gap_minutes')::bigint, 30) * 60000000,
    epoch_us(later_at) - epoch_us(earlier_at),
    0
);

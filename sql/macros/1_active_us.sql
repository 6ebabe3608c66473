-- The time between two consecutive events of a session in microseconds, if it counts as active: 0 if it is longer than the
-- variable session_gap_minutes (default 30), or if there is no earlier event. The variable is at least 15, so gaps within a
-- quarter of an hour always count, and session_15min_in_scope is sufficient to add gaps up.
create or replace macro active_us(earlier_at, later_at) as
if(
    epoch_us(later_at) - epoch_us(earlier_at) <= coalesce(getvariable('session_gap_minutes')::bigint, 30) * 60000000,
    epoch_us(later_at) - epoch_us(earlier_at),
    0
);

-- The active time between two consecutive events of a session in microseconds: 0 if it is longer than the variable
-- session_gap_minutes (default 30), or if there is no earlier event. The variable is at least 15, so that the time within a
-- quarter of an hour always counts.
create or replace macro active_us(earlier_at, later_at) as
if(
    epoch_us(later_at) - epoch_us(earlier_at) <= coalesce(getvariable('session_gap_minutes')::bigint, 30) * 60000000,
    epoch_us(later_at) - epoch_us(earlier_at),
    0
);

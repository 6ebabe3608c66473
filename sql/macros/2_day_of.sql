-- The day on which an instant (UTC) lies, in the time zone that the variable `timezone` names (IANA), else in UTC:
-- whatever the variable `interval` says. By other clocks the ends of time lie in years that Python and CSV don't have: what
-- is beyond the first or the last day counts to it.
create or replace macro day_of(instant) as
greatest(least(wall_clock(instant)::date, date '9999-12-31'), date '0001-01-01');

-- The day on which an instant (UTC) lies, in the time zone that the variable `timezone` names (IANA), else in UTC:
-- whatever the variable `interval` says.
create or replace macro day_of(instant) as wall_clock(instant)::date;

-- The day of a timestamp (UTC) in the variable `timezone` (IANA), otherwise in UTC. The variable `interval` has no effect. Local
-- times may be outside the years that Python and CSV support: days outside 0001-01-01 to 9999-12-31 become the nearest of these.
create or replace macro day_of(instant) as
greatest(least(wall_clock(instant)::date, date '9999-12-31'), date '0001-01-01');

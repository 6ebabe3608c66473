-- What the clocks show at an instant (UTC), where the variable `timezone` says (IANA), else in UTC. The way over epochs
-- keeps the time zone of the session out.
create or replace macro wall_clock(instant) as
if(
    getvariable('timezone') is null,
    instant,
    timezone(getvariable('timezone')::varchar, make_timestamptz(epoch_us(instant)))
);

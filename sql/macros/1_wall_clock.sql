-- The local time at a timestamp (UTC) in the variable `timezone` (IANA), otherwise UTC. The conversion uses epochs, so that
-- the time zone of the session has no influence.
create or replace macro wall_clock(instant) as
if(
    getvariable('timezone') is null,
    instant,
    timezone(getvariable('timezone')::varchar, make_timestamptz(epoch_us(instant)))
);

-- Start of the period in which an instant lies, in UTC: of the hour, day, week (Monday) or month that the variable
-- `interval` names, else of the day. Days begin at midnight in the time zone that `timezone` names (IANA), else in UTC.
-- Hours go by what has passed since the last full one, because the wall clock shows an hour twice when summer ends.
-- What began before the year 1 by other clocks begins with it: of times before, Python and CSV know nothing.
create or replace macro period_of(instant) as
case
    when getvariable('timezone') is null
        then date_trunc(coalesce(getvariable('interval')::varchar, 'day'), instant)
    when getvariable('interval')::varchar = 'hour'
        then greatest(instant - (wall_clock(instant) - date_trunc('hour', wall_clock(instant))), timestamp '0001-01-01')
    else greatest(
        midnight_of(date_trunc(coalesce(getvariable('interval')::varchar, 'day'), wall_clock(instant))),
        timestamp '0001-01-01'
    )
end;

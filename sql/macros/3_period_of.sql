-- Start of the period in which an instant lies, in UTC: of the hour, day, week (Monday) or month that the variable
-- `interval` names, else of the day. Days begin at midnight in the time zone that `timezone` names (IANA), else in UTC.
-- Where clocks move by half an hour, the hour in which they do has one and a half: what they show again, or begin with,
-- is no full one. To look for it makes an hour cost twice as much, so only those zones pay where it was so since 2011.
-- What began before the year 1 by other clocks begins with it: of times before, Python and CSV know nothing.
create or replace macro period_of(instant) as
case
    when getvariable('timezone') is null
        then date_trunc(coalesce(getvariable('interval')::varchar, 'day'), instant)
    when getvariable('interval')::varchar = 'hour'
        then greatest(
            if(
                getvariable('timezone')::varchar in (
                    'America/Caracas', 'Asia/Pyongyang', 'Australia/LHI', 'Australia/Lord_Howe', 'Pacific/Norfolk'
                ),
                hour_of(hour_of(instant)),
                hour_of(instant)
            ),
            timestamp '0001-01-01'
        )
    else greatest(
        midnight_of(date_trunc(coalesce(getvariable('interval')::varchar, 'day'), wall_clock(instant))),
        timestamp '0001-01-01'
    )
end;

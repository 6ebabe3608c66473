-- The start, in UTC, of the period of a timestamp: the hour, day, week (Monday) or month that the variable `interval` names,
-- otherwise the day. Days begin at midnight in the variable `timezone` (IANA), otherwise in UTC. If clocks change by half an
-- hour, that hour has one and a half: a repeated or partial hour is not an hour of its own. That search doubles the cost of an
-- hour, so only the zones pay in which it happened since 2011. Periods that began before the year 1 begin with it: Python and
-- CSV have no earlier times.
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

-- The start, in UTC, of the period of a timestamp: the hour, day, week (Monday) or month that the variable `interval` names,
-- otherwise the day. Days begin at midnight in the variable `timezone` (IANA), otherwise in UTC. If clocks change by half an
-- hour, the hour of the change lasts 90 minutes. That is slow to compute, so it is limited to the zones with such a change
-- since 2011. A period that would begin before the year 1 begins at the start of that year, because Python and CSV have no
-- earlier times.
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

-- When a day begins, in UTC: the instant at which the clocks of the variable `timezone` (IANA) show this midnight. Where
-- they skip it, the day begins when they go on; where they show it twice, because summer ends at one o'clock, with the
-- first. To look for a first one makes a period cost a third more, so only those zones pay where there was one since 2011:
-- a test finds them in the engine's own time-zone database.
create or replace macro midnight_of(midnight) as
make_timestamp(
    epoch_us(midnight at time zone getvariable('timezone')::varchar)
    - if(
        getvariable('timezone')::varchar in (
            'America/Havana', 'America/Scoresbysund', 'Asia/Amman', 'Asia/Gaza', 'Asia/Hebron', 'Atlantic/Azores', 'Cuba'
        )
        and wall_clock(
            make_timestamp(epoch_us(midnight at time zone getvariable('timezone')::varchar) - 3600000000)
        ) = midnight,
        3600000000,
        0
    )
);

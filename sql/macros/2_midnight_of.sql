-- The start of a day in UTC: the timestamp at which clocks in the variable `timezone` (IANA) show this midnight. If they skip
-- midnight, the day begins at the change. If they show it twice, because summer time ends at one o'clock, the day begins at the
-- first. The search for the first is slow, so it is limited to the zones in which this has happened since 2011. A test finds them
-- in DuckDB's time-zone database.
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

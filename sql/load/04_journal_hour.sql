-- Begins an hour when the server's clock is an hour or more from where the last one began, in either direction. So a clock that
-- jumps begins one hour too many. Imported lines have the time of their file, and begin none.
insert into journal_hour by name
with loaded as (
    select min(arrival) as first_arrival, make_timestamp(max(received_at) * 1000) as began_at
    from arrived
    where not is_imported
),
last as (
    select arg_max(began_at, first_arrival) as began_at from journal_hour
)
select loaded.first_arrival, loaded.began_at
from loaded
cross join last
where last.began_at is null
   or abs(epoch_us(loaded.began_at) - epoch_us(last.began_at)) >= 3600000000;

-- One row per hour in which something was received and loaded, by the journal's order. Ids are remembered for a number of these
-- hours, so a clock that jumps does not shorten that (docs/decisions/0019). Never more than a row an hour.
create table journal_hour (
    first_arrival bigint,   -- where the hour begins in the order of arrival
    began_at      timestamp -- when, by the server's clock
);

insert into journal_hour
select min(split_part(segment, '-', 1)::bigint) << 32, min(loaded_at)
from loaded_segment
group by date_trunc('hour', loaded_at);

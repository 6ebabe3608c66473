-- One row per hour in which a delivery was received and loaded, in the order of the journal. Ids are compared with those of a
-- number of these hours, so a clock that jumps does not shorten the deduplication (docs/decisions/0019).
create table journal_hour (
    first_arrival bigint,   -- the first arrival of the hour
    began_at      timestamp -- the start of the hour, by the server's clock
);

insert into journal_hour
select min(split_part(segment, '-', 1)::bigint) << 32, min(loaded_at)
from loaded_segment
group by date_trunc('hour', loaded_at);

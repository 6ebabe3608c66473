-- Begins a journal hour when the server's clock is an hour or more before or after the start of the last journal hour.
-- Imported lines have the time of their file and begin no hour.
insert into journal_hour by name
with incoming_hour as (
    select min(ingest_seq) as first_ingest_seq, make_timestamp(max(received_at) * 1000) as began_at
    from incoming_line
    where not is_imported
),
last_hour as (
    select arg_max(began_at, first_ingest_seq) as began_at from journal_hour
)
select incoming_hour.first_ingest_seq, incoming_hour.began_at
from incoming_hour
cross join last_hour
where last_hour.began_at is null
   or abs(epoch_us(incoming_hour.began_at) - epoch_us(last_hour.began_at)) >= 3600000000;

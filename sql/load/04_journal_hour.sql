-- Begins a journal hour when the server's clock is an hour or more away from the start of the last one, in either direction: a
-- jump of the clock begins an extra hour. Imported lines have the time of their file and begin no hour.
insert into journal_hour by name
with loaded as (
    select min(ingest_seq) as first_ingest_seq, make_timestamp(max(received_at) * 1000) as began_at
    from incoming_line
    where not is_imported
),
last as (
    select arg_max(began_at, first_ingest_seq) as began_at from journal_hour
)
select loaded.first_ingest_seq, loaded.began_at
from loaded
cross join last
where last.began_at is null
   or abs(epoch_us(loaded.began_at) - epoch_us(last.began_at)) >= 3600000000;

-- Accepted events without duplicates.
insert into event by name
select * from incoming_event where ingest_seq not in (select ingest_seq from duplicate_line);

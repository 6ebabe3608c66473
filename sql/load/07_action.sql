-- Accepted actions without duplicates.
insert into action by name
select * from incoming_action where ingest_seq not in (select ingest_seq from duplicate_line);

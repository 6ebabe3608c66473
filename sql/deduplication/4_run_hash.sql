-- One row per stored envelope with run_from <= ingest_seq < run_end: the hash of its id.
select id_hash_of(event_id) as hash
from event
where ingest_seq >= getvariable('run_from')::bigint and ingest_seq < getvariable('run_end')::bigint
union all
select id_hash_of(action_id)
from action
where ingest_seq >= getvariable('run_from')::bigint and ingest_seq < getvariable('run_end')::bigint;

-- One row: the end of the next run of ids, which begins with the ingest_seq `run_from`; null while there are fewer envelopes of
-- each kind than `run_rows`. Rows are stored in the order of ingest_seq, so a limit selects the oldest ones.
select min(last_ingest_seq) + 1 as run_end
from (
    select max(ingest_seq) as last_ingest_seq, count(*) as row_count
    from (select ingest_seq from event where ingest_seq >= getvariable('run_from')::bigint limit getvariable('run_rows')::bigint)
    union all
    select max(ingest_seq), count(*)
    from (select ingest_seq from action where ingest_seq >= getvariable('run_from')::bigint limit getvariable('run_rows')::bigint)
)
where row_count = getvariable('run_rows')::bigint;

-- One row per dbt sync (spec 2.1 to 2.3): the first result that came in for its deployment and job.
create table sync (
    arrival           bigint,    -- the order of journaling, as in `event`
    received_at       timestamp,
    key_id            varchar,
    deployment        bigint,
    sync_job_id       varchar,
    completed_at      timestamp,
    completed_at_text varchar,   -- as it was sent
    duration_ms       bigint,
    cube_count        bigint,    -- `svcCount` on the wire
    model_count       bigint,
    source_count      bigint,
    macro_count       bigint,
    digest            varchar,   -- SHA-256 of the body, in hex: another body for the same job is a conflict
    extra             json       -- members of the body beyond spec 2.1 to 2.3
);

-- One row per file that a sync generated. A separate table, because DuckDB reads 2,048 rows at a time, regardless of
-- their length: results with thousands of files each would need too much memory.
create table sync_file (
    sync_arrival bigint,    -- `arrival` of its sync
    place        bigint,    -- in the result, from 0
    path         varchar
);

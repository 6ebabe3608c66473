-- How many accepted envelopes of a ledger were deleted after their retention. Null stands for 0.
alter table loaded_segment add column expired_count bigint;

-- The ingest_seq of the first and the last event that a rollup batch may contain. Null in batches of earlier versions.
alter table rollup_batch add column first_ingest_seq bigint;
alter table rollup_batch add column last_ingest_seq bigint;

-- One row per session of which earlier events were deleted: their highest `seq`. So they don't count as missing.
create table expired_session (
    key_id   varchar,
    session  varchar,
    last_seq bigint
);

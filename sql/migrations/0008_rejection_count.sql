-- One row per key, deployment, reason and quarter of an hour with rejections that are only counted: they exceeded the limits
-- of the quarantine, or were purged.
create table rejection_count (
    key_id           varchar,
    deployment       bigint,
    reason           varchar,
    began_at         timestamp, -- the quarter, by received_at
    rejected_count   bigint,
    replayed_count   bigint,    -- how many of these a replay accepted
    last_received_at timestamp
);

-- How many of quarantined_count are only in rejection_count, and not rows of `quarantine`. Null in older ledgers.
alter table loaded_segment add column unkept_count bigint;

-- If only the beginning of a rejection is stored: the bytes of the whole, and their SHA-256 in hex. Otherwise null.
alter table quarantine add column whole_bytes bigint;
alter table quarantine add column whole_sha256 varchar;

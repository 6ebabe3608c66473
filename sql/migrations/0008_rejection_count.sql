-- One row per key, deployment, reason and quarter of an hour in which something was rejected that the quarantine does not
-- have: beyond its limits, or purged since. Only counts are left of it.
create table rejection_count (
    key_id           varchar,
    deployment       bigint,
    reason           varchar,
    began_at         timestamp, -- the quarter, by received_at
    rejected_count   bigint,
    replayed_count   bigint,    -- of these, how many were accepted after all
    last_received_at timestamp
);

-- Of quarantined_count, how many are no rows of `quarantine`: they are in rejection_count. Null in ledgers older than this.
alter table loaded_segment add column unkept_count bigint;

-- Of a rejection of which `raw` is only the beginning: the bytes of the whole, and their SHA-256 in hex. Null where it is whole.
alter table quarantine add column whole_bytes bigint;
alter table quarantine add column whole_sha256 varchar;

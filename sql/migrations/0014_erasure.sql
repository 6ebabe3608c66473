-- Events and actions are deleted after their retention, and by erasures.
alter table loaded_segment rename column expired_count to deleted_count;

-- How many quarantined envelopes of a ledger were deleted by erasures. Null stands for 0.
alter table loaded_segment add column deleted_rejection_count bigint;

-- One row per number of an erased event or action in a session that other people share. So it does not count as missing.
create table erased_seq (
    key_id  varchar,
    session varchar,
    seq     bigint
);

-- One row of the ledger may stand for many old segments without a gap between them: from this number to that of `segment`.
-- Null stands for one segment.
alter table loaded_segment add column first_number bigint;
-- How many envelopes were lost to a damaged file: received = accepted + duplicate + quarantined + lost. Null stands for 0.
alter table loaded_segment add column lost_count bigint;

-- The segment's ledger, in the same transaction as its rows. A conflict is quarantined; other repeats are duplicates.
insert into loaded_segment by name
with counted as (
    select
        count(*) filter (kind in ('event', 'action', 'quarantined')) as received_count,
        count(*) filter (kind = 'quarantined') as rejected_count,
        (select count(*) from repeated) as repeated_count,
        (select count(*) from conflict) as conflict_count
    from arrived
)
select
    getvariable('segment_name') as segment,
    now()::timestamptz at time zone 'UTC' as loaded_at,
    getvariable('segment_bytes')::bigint as byte_count,
    received_count,
    received_count - rejected_count - repeated_count as accepted_count,
    repeated_count - conflict_count as duplicate_count,
    rejected_count + conflict_count as quarantined_count
from counted;

-- Replaces the ledger rows of old segments with one row per run of consecutive segments of one day. The variable
-- `compact_below` is the number of the first segment that retains a row of its own.
create or replace temp table compacted_ledger as
with ledger as (
    select
        * exclude (first_number),
        split_part(segment, '-', 1)::bigint as last_number,
        coalesce(first_number, last_number) as from_number
    from loaded_segment
    where last_number < getvariable('compact_below')::bigint
),
ledger_with_run_start as (
    select
        *,
        from_number - 1 is distinct from lag(last_number) over (order by last_number)
        or loaded_at::date is distinct from lag(loaded_at::date) over (order by last_number) as begins_run
    from ledger
),
numbered_ledger as (
    select *, count(*) filter (begins_run) over (order by last_number) as run_number
    from ledger_with_run_start
)
select
    max(segment) as segment,
    max(loaded_at) as loaded_at,
    sum(byte_count)::bigint as byte_count,
    sum(received_count)::bigint as received_count,
    sum(accepted_count)::bigint as accepted_count,
    sum(duplicate_count)::bigint as duplicate_count,
    sum(quarantined_count)::bigint as quarantined_count,
    sum(counted_only_count)::bigint as counted_only_count,
    sum(lost_count)::bigint as lost_count,
    sum(deleted_count)::bigint as deleted_count,
    sum(deleted_rejection_count)::bigint as deleted_rejection_count,
    nullif(min(from_number), max(last_number)) as first_number
from numbered_ledger
group by run_number;

delete from loaded_segment where split_part(segment, '-', 1)::bigint < getvariable('compact_below')::bigint;

insert into loaded_segment by name
from compacted_ledger order by segment;

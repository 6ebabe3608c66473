-- One row per gap in the numbers of the segments that the store or the journal has; the last gap has no end.
create or replace temp table missing as
with known_range as (
    select coalesce(first_number, number) as first_number, number as last_number
    from (select split_part(segment, '-', 1)::bigint as number, first_number from loaded_segment)
    union all
    select number, number from (select unnest(getvariable('journal_numbers')::bigint[]) as number)
),
gap as (
    select
        coalesce(max(last_number) over (
            order by first_number
            rows between unbounded preceding and 1 preceding
        ), 0) + 1 as first_number,
        first_number - 1 as last_number
    from known_range
)
from gap where last_number >= first_number
union all
select coalesce(max(last_number), 0) + 1, 2147483647 from known_range;

-- The ledgers of missing segments, as read from damaged files.
create or replace temp table salvaged_ledger as from loaded_segment limit 0;

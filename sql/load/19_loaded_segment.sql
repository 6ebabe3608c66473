-- The ledgers of the segments, in the same transaction as their rows. A conflict is quarantined. Other repeated envelopes and
-- rejections are duplicates. Rejections that are only counted are quarantined without a row.
insert into loaded_segment by name
with outcome as (
    select
        ingest_seq // 4294967296 as number,
        kind = 'quarantined' as is_rejected,
        ingest_seq in (select ingest_seq from duplicate_line) as is_duplicate,
        ingest_seq in (select ingest_seq from incoming_rejection) as is_stored,
        ingest_seq in (select ingest_seq from id_conflict) as is_conflict
    from incoming_line
    where kind in ('event', 'action', 'quarantined')
),
counted_rejection_of_segment as (
    select ingest_seq // 4294967296 as number, sum(rejected_count)::bigint as counted_only_count
    from incoming_line
    where kind = 'counted'
    group by all
)
select
    name as segment,
    -- A segment that is loaded late, such as a repaired one, is as old as the next one. So it does not delay the retention.
    least(
        now()::timestamptz at time zone 'UTC',
        (
            select min(later.loaded_at)
            from loaded_segment as later
            where later.segment > segment.name
              -- The constant skips row groups of older segments.
              and later.segment >= printf('%012d', getvariable('loaded_from')::bigint >> 32)
        )
    ) as loaded_at,
    byte_count,
    count(outcome.number) + coalesce(any_value(counted_only_count), 0) as received_count,
    count(*) filter (not is_rejected and not is_duplicate) as accepted_count,
    count(*) filter ((is_duplicate or is_rejected) and not (is_stored or is_conflict)) as duplicate_count,
    count(*) filter (is_stored or is_conflict) + coalesce(any_value(counted_only_count), 0) as quarantined_count,
    count(*) filter (is_conflict and not is_stored) + coalesce(any_value(counted_only_count), 0) as counted_only_count
from (select unnest(getvariable('segments'), recursive := true)) as segment
left join outcome using (number)
left join counted_rejection_of_segment using (number)
group by name, byte_count
order by name;

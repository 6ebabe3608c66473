-- The segments' ledgers, in the same transaction as their rows. A conflict is quarantined; other repeats are duplicates, of
-- rejections too. What is only counted is quarantined without a row.
insert into loaded_segment by name
with outcome as (
    select
        arrival // 4294967296 as number,
        kind = 'quarantined' as is_rejected,
        arrival in (select arrival from repeated) as is_repeated,
        arrival in (select arrival from rejected) as is_kept,
        arrival in (select arrival from conflict) as is_conflict
    from arrived
    where kind in ('event', 'action', 'quarantined')
),
counted_in as (
    select arrival // 4294967296 as number, sum(rejected_count)::bigint as unkept_count
    from arrived
    where kind = 'counted'
    group by all
)
select
    name as segment,
    now()::timestamptz at time zone 'UTC' as loaded_at,
    byte_count,
    count(outcome.number) + coalesce(any_value(unkept_count), 0) as received_count,
    count(*) filter (not is_rejected and not is_repeated) as accepted_count,
    count(*) filter ((is_repeated or is_rejected) and not (is_kept or is_conflict)) as duplicate_count,
    count(*) filter (is_kept or is_conflict) + coalesce(any_value(unkept_count), 0) as quarantined_count,
    count(*) filter (is_conflict and not is_kept) + coalesce(any_value(unkept_count), 0) as unkept_count
from (select unnest(getvariable('segments'), recursive := true)) as segment
left join outcome using (number)
left join counted_in using (number)
group by name, byte_count
order by name;

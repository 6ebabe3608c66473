-- The segments' ledgers, in the same transaction as their rows. A conflict is quarantined; other repeats are duplicates, of
-- rejections too.
insert into loaded_segment by name
with fate as (
    select
        arrival // 4294967296 as number,
        kind = 'quarantined' as is_rejected,
        arrival in (select arrival from repeated) as is_repeated,
        arrival in (select arrival from rejected) as is_quarantined
    from arrived
    where kind in ('event', 'action', 'quarantined')
)
select
    name as segment,
    now()::timestamptz at time zone 'UTC' as loaded_at,
    byte_count,
    count(fate.number) as received_count,
    count(*) filter (not is_rejected and not is_repeated) as accepted_count,
    count(*) filter ((is_repeated or is_rejected) and not is_quarantined) as duplicate_count,
    count(*) filter (is_quarantined) as quarantined_count
from (select unnest(getvariable('segments'), recursive := true)) as segment
left join fate using (number)
group by name, byte_count
order by name;

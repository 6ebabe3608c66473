-- One row per segment whose ledger is not what lies in the tables: received = accepted + duplicate + quarantined, and
-- as many rows as it says. A null segment has rows that no loaded segment accounts for.
-- What to do: the store was changed by hand, or the loader has a bug. Keep a copy of the data folder for the report,
-- then `embedsink rebuild`.
with ledger as (
    select split_part(segment, '-', 1)::bigint as segment_number, *
    from loaded_segment
),
kept as (
    select
        arrival >> 32 as segment_number,
        count(*) filter (table_name <> 'quarantine') as kept_accepted_count,
        count(*) filter (table_name = 'quarantine') as kept_quarantined_count
    from (
        select 'event' as table_name, arrival from event
        union all
        select 'action', arrival from action
        union all
        select 'quarantine', arrival from quarantine
    )
    group by all
)
select
    segment,
    segment_number,
    received_count,
    accepted_count,
    duplicate_count,
    quarantined_count,
    coalesce(kept_accepted_count, 0) as kept_accepted_count,
    coalesce(kept_quarantined_count, 0) as kept_quarantined_count
from ledger
full join kept using (segment_number)
where segment is null
   or received_count is distinct from accepted_count + duplicate_count + quarantined_count
   or accepted_count is distinct from coalesce(kept_accepted_count, 0)
   or quarantined_count is distinct from coalesce(kept_quarantined_count, 0)
order by segment_number;

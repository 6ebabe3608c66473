-- One row per ledger with received <> accepted + duplicate + quarantined + lost, or whose numbers of rows differ from those of
-- the tables. A ledger covers one segment, or many old ones. The segment is null for rows without a ledger.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report,
-- then run `embedsink rebuild`.
with ledger as (
    select
        split_part(segment, '-', 1)::bigint as last_number,
        coalesce(first_number, last_number) as from_number,
        * exclude (first_number)
    from loaded_segment
),
stored_of_segment as (
    select
        ingest_seq >> 32 as segment_number,
        count(*) filter (table_name <> 'quarantine') as stored_accepted_count,
        count(*) filter (table_name = 'quarantine') as stored_quarantined_count
    from (
        select 'event' as table_name, ingest_seq from event
        union all
        select 'action', ingest_seq from action
        union all
        select 'quarantine', ingest_seq from quarantine
    )
    group by all
),
stored as (
    select
        if(segment_number <= last_number, from_number, segment_number) as from_number,
        sum(stored_accepted_count)::bigint as stored_accepted_count,
        sum(stored_quarantined_count)::bigint as stored_quarantined_count
    from stored_of_segment
    asof left join (select from_number, last_number from ledger) as ledger on segment_number >= ledger.from_number
    group by 1
)
select
    segment,
    from_number as segment_number,
    received_count,
    accepted_count,
    duplicate_count,
    quarantined_count,
    counted_only_count,
    deleted_count,
    deleted_rejection_count,
    coalesce(stored_accepted_count, 0) as stored_accepted_count,
    coalesce(stored_quarantined_count, 0) as stored_quarantined_count
from ledger
full join stored using (from_number)
where segment is null
   or received_count is distinct from accepted_count + duplicate_count + quarantined_count + coalesce(lost_count, 0)
   or accepted_count is distinct from coalesce(stored_accepted_count, 0) + coalesce(deleted_count, 0)
   or quarantined_count is distinct from coalesce(stored_quarantined_count, 0) + coalesce(counted_only_count, 0)
       + coalesce(deleted_rejection_count, 0)
order by segment_number;

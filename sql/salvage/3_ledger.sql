-- The ledgers of salvaged segments. Envelopes count as lost if the ledger of a damaged file includes them but no file could
-- supply them, except rejections that were only counted. If no file has a readable ledger of a segment, its ledger is computed
-- from its rows.
insert into loaded_segment by name
with stored as (
    select
        ingest_seq >> 32 as number,
        count(*) filter (table_name in ('event', 'action')) as accepted_count,
        count(*) filter (table_name = 'quarantine') as quarantined_count
    from (
        select 'event' as table_name, ingest_seq from event
        union all
        select 'action', ingest_seq from action
        union all
        select 'quarantine', ingest_seq from quarantine
        union all
        select 'loss', ingest_seq from loss
        union all
        select 'sync', ingest_seq from sync
        union all
        select 'directory_user', ingest_seq from directory_user
        union all
        select 'directory_group', ingest_seq from directory_group
    )
    where exists (select 1 from missing where ingest_seq >> 32 between missing.first_number and missing.last_number)
    group by number
),
ledger as (
    select
        *,
        split_part(segment, '-', 1)::bigint as last_number,
        coalesce(first_number, last_number) as from_number
    from salvaged_ledger
),
salvaged as (
    select
        ledger.segment,
        any_value(ledger.first_number) as first_number,
        any_value(ledger.loaded_at) as ledger_loaded_at,
        any_value(ledger.byte_count) as byte_count,
        any_value(ledger.received_count) as received_count,
        any_value(ledger.duplicate_count) as duplicate_count,
        coalesce(any_value(ledger.counted_only_count), 0) as counted_only,
        coalesce(any_value(ledger.deleted_count), 0) as deleted,
        coalesce(any_value(ledger.deleted_rejection_count), 0) as deleted_rejections,
        coalesce(sum(stored.accepted_count), 0)::bigint as stored_accepted_count,
        coalesce(sum(stored.quarantined_count), 0)::bigint as stored_quarantined_count
    from ledger
    left join stored on stored.number between ledger.from_number and ledger.last_number
    group by ledger.segment
    union all by name
    select
        printf('%012d-00000000.ndjson', number) as segment,
        0 as byte_count,
        accepted_count + quarantined_count as received_count,
        0 as duplicate_count,
        0 as counted_only,
        0 as deleted,
        0 as deleted_rejections,
        accepted_count as stored_accepted_count,
        quarantined_count as stored_quarantined_count
    from stored
    where not exists (select 1 from ledger where stored.number between ledger.from_number and ledger.last_number)
)
select
    * exclude (ledger_loaded_at, counted_only, deleted, deleted_rejections, stored_accepted_count, stored_quarantined_count),
    -- Another file may still have rejections and events that were deleted from the file with the ledger.
    greatest(0, least(counted_only, received_count - stored_accepted_count - duplicate_count - stored_quarantined_count)) as counted_only_count,
    nullif(greatest(0, least(
        deleted,
        received_count - stored_accepted_count - duplicate_count - stored_quarantined_count - counted_only_count
    )), 0) as deleted_count,
    nullif(greatest(0, least(
        deleted_rejections,
        received_count - stored_accepted_count - duplicate_count - stored_quarantined_count - counted_only_count
        - coalesce(deleted_count, 0)
    )), 0) as deleted_rejection_count,
    stored_accepted_count + coalesce(deleted_count, 0) as accepted_count,
    stored_quarantined_count + counted_only_count + coalesce(deleted_rejection_count, 0) as quarantined_count,
    -- Salvaged events are not younger, so that their retention does not begin again.
    coalesce(ledger_loaded_at, now()::timestamptz at time zone 'UTC') as loaded_at,
    received_count - accepted_count - duplicate_count - quarantined_count as lost_count
from salvaged
order by segment;

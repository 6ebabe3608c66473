-- One row per envelope with a known id: the id of an earlier envelope in these segments, or in the deduplication window of the
-- store. Imported envelopes are compared with the whole store, because a file may be imported again years later. Replayed
-- envelopes are compared with all envelopes since `dedup_days` days before their rejection.

-- The first ingest_seq to compare with. It is a variable, because only a constant limits the scan.
set variable dedup_from = (
    with hour as (
        select *, row_number() over (order by first_ingest_seq desc) as hour_number from journal_hour
    ),
    incoming as (
        select
            bool_or(is_imported) as is_imported,
            bool_or(kind = 'replayed') as is_replayed,
            make_timestamp(min(received_at) * 1000) - to_days(getvariable('dedup_days')::integer) as since
        from incoming_line
    )
    select if(
        any_value(is_imported),
        0,
        least(
            -- A store with fewer hours is compared completely.
            coalesce(min(first_ingest_seq) filter (hour_number = getvariable('dedup_days')::integer * 24 + 1), 0),
            min(first_ingest_seq) filter (is_replayed and began_at >= since - interval 1 hour)
        )
    )
    from incoming
    left join hour on true
);

create or replace temp table duplicate_line as
with incoming as (
    select kind, id, ingest_seq, row_number() over (partition by kind, id order by ingest_seq) as occurrence
    from incoming_line
    where kind in ('event', 'action')
),
stored as (
    select 'event' as kind, event_id as id from event
    where ingest_seq >= getvariable('dedup_from')::bigint
      and event_id in (select id from incoming where kind = 'event')
    union all
    select 'action', action_id from action
    where ingest_seq >= getvariable('dedup_from')::bigint
      and action_id in (select id from incoming where kind = 'action')
)
select kind, id, ingest_seq, occurrence
from incoming
where occurrence > 1 or (kind, id) in (select (kind, id) from stored);

-- Duplicate ids with different content: 08_id_conflict.sql fills it.
create or replace temp table id_conflict (ingest_seq bigint, id uuid);

-- Complete rejections: 09_incoming_rejection.sql and 10_conflict_rejection.sql fill it.
create or replace temp table incoming_rejection as
select * exclude (raw_length, replayed_at) from quarantine limit 0;

-- One row per delivered envelope whose id was seen before: earlier in these segments, or in the last days of the store. What
-- comes out of a file is compared with the whole store: files are imported again years later, and that is rare. A replay is
-- compared from the days before the rejection on.
-- The bound on ingest_seq is a literal when the query is planned, so that older rows are never read. The delivered ids
-- are the small side: they are hashed, and the stored ones only stream past.
set variable dedup_from = (
    with hour as (
        select *, row_number() over (order by first_ingest_seq desc) as age from journal_hour
    ),
    delivered as (
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
            -- Of a younger store all is compared.
            coalesce(min(first_ingest_seq) filter (age = getvariable('dedup_days')::integer * 24 + 1), 0),
            min(first_ingest_seq) filter (is_replayed and began_at >= since - interval 1 hour)
        )
    )
    from delivered
    left join hour on true
);

create or replace temp table duplicate_line as
with delivered as (
    select kind, id, ingest_seq, row_number() over (partition by kind, id order by ingest_seq) as turn
    from incoming_line
    where kind in ('event', 'action')
),
stored as (
    select 'event' as kind, event_id as id from event
    where ingest_seq >= getvariable('dedup_from')::bigint
      and event_id in (select id from delivered where kind = 'event')
    union all
    select 'action', action_id from action
    where ingest_seq >= getvariable('dedup_from')::bigint
      and action_id in (select id from delivered where kind = 'action')
)
select kind, id, ingest_seq, turn
from delivered
where turn > 1 or (kind, id) in (select (kind, id) from stored);

-- Those of them whose content is not that of the first: conflict.sql finds them.
create or replace temp table id_conflict (ingest_seq bigint, id uuid);

-- What goes into quarantine, whole: rejected.sql and conflicting.sql fill it.
create or replace temp table incoming_rejection as
select * exclude (raw_length, replayed_at) from quarantine limit 0;

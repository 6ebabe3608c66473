-- One row per id that a load compares with those of stored envelopes. Imported envelopes are compared with the whole store,
-- because a file may be imported again years later. Replayed envelopes are compared with all envelopes since `dedup_days` days
-- before their rejection. Others are compared with the envelopes in the deduplication window.
create or replace temp table compared_id as
select kind, id
from incoming_line
where kind in ('event', 'action');

-- The first ingest_seq of the deduplication window. A store with fewer hours is compared completely.
set variable dedup_window_from = (
    select coalesce(min(first_ingest_seq) filter (hour_number = getvariable('dedup_days')::integer * 24 + 1), 0)
    from (select *, row_number() over (order by first_ingest_seq desc) as hour_number from journal_hour)
);

-- The first ingest_seq to compare with. It is a variable, because only a constant limits a scan.
set variable dedup_from = (
    with incoming as (
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
            getvariable('dedup_window_from')::bigint,
            min(first_ingest_seq) filter (is_replayed and began_at >= since - interval 1 hour)
        )
    )
    from incoming
    left join journal_hour on true
);

-- One row per stored envelope with one of these ids. 2_stored_id.sql fills it.
create or replace temp table stored_id (kind varchar, id uuid, ingest_seq bigint);

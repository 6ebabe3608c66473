-- One row where the sums of quarters of an hour are not those of the events that were summed up.
-- What to do: the store was changed by hand, or the loader has a bug. Reports read these sums. Keep a copy of the data folder
-- for the report, then `embedsink rebuild`.
with summed_event as (
    select *
    from event
    where arrival <= (select max(up_to) from summed) and occurred_at >= timestamp '2012-01-01'
),
told as (
    select
        count(*)::bigint as event_count,
        count(*) filter (type = 'view') as view_count,
        count(*) filter (type = 'error') as error_count,
        min(occurred_at) as first_at,
        max(occurred_at) as last_at
    from summed_event
),
kept as (
    select
        coalesce(sum(event_count), 0)::bigint as event_count,
        coalesce(sum(view_count), 0)::bigint as view_count,
        coalesce(sum(error_count), 0)::bigint as error_count,
        min(first_at) as first_at,
        max(last_at) as last_at
    from session_quarter
)
select told as of_events, kept as of_sums
from told, kept
where told is distinct from kept;

-- One row per dbt sync in scope with a view, an error or a load time of its deployment in the 24 hours before or after it.
-- Only events on the surface and of the tenant in scope count. The windows reach beyond the period.
-- The step sync_day has one row per sync and day of its windows, so that events join by day (a hash join).
create or replace view sync_window_metrics as
with sync_day as (
    select
        ingest_seq,
        deployment,
        completed_at,
        unnest(generate_series(
            date_trunc('day', completed_at - interval 24 hour), completed_at + interval 24 hour, interval 1 day
        )) as day
    from sync_in_scope
)
select
    ingest_seq,
    count(*) filter (type = 'view' and occurred_at < completed_at) as view_count_before,
    count(*) filter (type = 'view' and occurred_at >= completed_at) as view_count_after,
    count(*) filter (type = 'error' and occurred_at < completed_at) as error_count_before,
    count(*) filter (type = 'error' and occurred_at >= completed_at) as error_count_after,
    quantile_cont(load_duration_ms, 0.95) filter (occurred_at < completed_at) as load_p95_before_ms,
    quantile_cont(load_duration_ms, 0.95) filter (occurred_at >= completed_at) as load_p95_after_ms
from sync_day
join (
    select
        deployment,
        occurred_at,
        type,
        valid_duration_ms(load_duration_ms) as load_duration_ms
    from event_at_any_time
    where type in ('view', 'error', 'dashboard-loaded')
      and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp - interval 24 hour)
      and (getvariable('until') is null or occurred_at < getvariable('until')::timestamp + interval 24 hour)
) as event
on event.deployment = sync_day.deployment
    and date_trunc('day', occurred_at) = day
    and occurred_at >= completed_at - interval 24 hour
    and occurred_at < completed_at + interval 24 hour
group by ingest_seq;

comment on view sync_window_metrics is
'Views, errors and load times in the 24 hours before and after each dbt sync in scope.';

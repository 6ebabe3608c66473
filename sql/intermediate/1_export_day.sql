-- One row per day, deployment and viewer with a download in scope, in the period or the 28 days before it, with days in the
-- reader's time zone. The day of `since` is complete.
create or replace view export_day as
select
    day_of(occurred_at) as day,
    deployment,
    viewer,
    count(*) as download_count,
    coalesce(sum(valid_row_count(row_count)), 0)::bigint as exported_row_count
from event_at_any_time
where type = 'download'
  -- 28 whole days before the day of `since`, plus a margin for time zones and clock changes.
  and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp - interval 30 days)
  and (getvariable('until') is null or occurred_at < getvariable('until')::timestamp)
group by all;

comment on view export_day is 'Downloads of each viewer on each day of the period and of the 28 days before it.';

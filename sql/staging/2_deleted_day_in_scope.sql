-- One row per UTC day that the period overlaps and whose events the retention deleted with daily totals. The newest totaled day may
-- be totaled only because the day before it was deleted. It is left out while the oldest stored event is not later.
create or replace view deleted_day_in_scope as
select
    totaled_day.day,
    totaled_day_in_scope.day is not null as has_totals_in_scope
from totaled_day
left join totaled_day_in_scope on totaled_day.day = totaled_day_in_scope.day
where (getvariable('since') is null or totaled_day.day + interval 1 day > getvariable('since')::timestamp)
  and (getvariable('until') is null or totaled_day.day < getvariable('until')::timestamp)
  and (
      totaled_day.day < (select max(day) from totaled_day)
      -- The rows of `event` are stored in the order of ingest_seq.
      or totaled_day.day < coalesce((select occurred_at::date from event limit 1), date 'infinity')
  );

comment on view deleted_day_in_scope is 'Days of the period whose events were deleted.';
comment on column deleted_day_in_scope.day is 'Day in UTC.';
comment on column deleted_day_in_scope.has_totals_in_scope is
'Whether the reports with daily totals read these for the session variables that are set. All other reports lack the day.';

-- One row per UTC day that the period overlaps and whose events the retention deleted with daily totals. The newest totaled day may
-- be totaled only because the day before it was deleted. It is included once none of its events is stored.
create or replace view deleted_day_in_scope as
with newest as (
    select max(day) as day
    from totaled_day
)
select
    totaled_day.day,
    totaled_day_in_scope.day is not null as has_totals_in_scope
from totaled_day
left join totaled_day_in_scope on totaled_day.day = totaled_day_in_scope.day
where (getvariable('since') is null or totaled_day.day + interval 1 day > getvariable('since')::timestamp)
  and (getvariable('until') is null or totaled_day.day < getvariable('until')::timestamp)
  and (
      totaled_day.day < (select day from newest)
      -- These comparisons skip row groups without events of the day, unlike a comparison with `occurred_at::date`.
      or not exists (
          from event
          where occurred_at >= (select day from newest)
            and occurred_at < (select day + interval 1 day from newest)
      )
  );

comment on view deleted_day_in_scope is 'Days of the period whose events were deleted.';
comment on column deleted_day_in_scope.day is 'Day in UTC.';
comment on column deleted_day_in_scope.has_totals_in_scope is
'Whether the reports with daily totals read its totals for the session variables that are set. All other reports lack the day.';

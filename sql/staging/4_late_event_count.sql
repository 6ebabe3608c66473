-- One row: how many events in scope, after the ingest_seq in the variable `after`, are of days that already have daily totals.
create or replace view late_event_count as
select count(*) as event_count
from event_in_scope
semi join totaled_day on event_in_scope.occurred_at::date = totaled_day.day
where getvariable('after') is null or ingest_seq > getvariable('after')::bigint;

comment on view late_event_count is 'Number of events in scope after the variable `after` whose days already have daily totals.';

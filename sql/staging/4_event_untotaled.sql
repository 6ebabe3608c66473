-- One row per event in scope of a day without daily totals in scope.
create or replace view event_untotaled as
select *
from event_in_scope
anti join totaled_day_in_scope on event_in_scope.occurred_at::date = totaled_day_in_scope.day;

comment on view event_untotaled is 'Events in scope, without those of days whose totals replace them.';

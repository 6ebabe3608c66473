-- One row per row of session_15min_in_scope of a day without daily totals in scope.
create or replace view session_15min_untotaled as
select *
from session_15min_in_scope
anti join totaled_day_in_scope on session_15min_in_scope.began_at::date = totaled_day_in_scope.day;

comment on view session_15min_untotaled is
'Events in scope by quarter of an hour, without those of days whose totals replace them.';

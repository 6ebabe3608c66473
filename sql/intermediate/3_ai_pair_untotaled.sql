-- One row per AI query in scope (ai_pair) of a day without daily totals in scope.
create or replace view ai_pair_untotaled as
select *
from ai_pair
anti join totaled_day_in_scope on ai_pair.occurred_at::date = totaled_day_in_scope.day;

comment on view ai_pair_untotaled is 'AI queries in scope, without those of days whose totals replace them.';

-- One row per day, deployment, surface and tenant of the daily totals in scope of the report views.
create or replace view daily_view_in_scope as
from daily_total_in_scope('daily_view');

comment on view daily_view_in_scope is 'Daily totals in scope of the report views.';

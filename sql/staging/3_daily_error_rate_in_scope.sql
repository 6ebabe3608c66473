-- One row per day, deployment, surface and tenant of the daily totals in scope of the report error_rates.
create or replace view daily_error_rate_in_scope as
from daily_total_in_scope('daily_error_rate');

comment on view daily_error_rate_in_scope is 'Daily totals in scope of the report error_rates.';

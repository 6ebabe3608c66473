-- One row per day, deployment, surface, format, target and tenant of the daily totals in scope of the report downloads.
create or replace view daily_download_in_scope as
from daily_total_in_scope('daily_download');

comment on view daily_download_in_scope is 'Daily totals in scope of the report downloads.';

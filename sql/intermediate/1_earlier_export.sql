-- One row if any viewer in scope exported before the days of export_day, otherwise none. It stops at the first row.
create or replace view earlier_export as
select true as has_earlier_export
from session_15min_between(null::timestamp, getvariable('since')::timestamp - interval 30 days)
where getvariable('since') is not null
  and download_count > 0
limit 1;

comment on view earlier_export is 'One row if any viewer in scope exported more than 30 days before the period.';

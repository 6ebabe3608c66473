-- One row per report and UTC day in scope whose rows come from daily totals, not from events.
create or replace view totaled_report_day as
select 'views' as report, day from daily_view_in_scope
union
select 'downloads', day from daily_download_in_scope
union
select 'error_rates', day from daily_error_rate_in_scope
union
select 'ai_queries', day from daily_ai_query_in_scope
union
select 'tenants', day from daily_tenant_in_scope;

comment on view totaled_report_day is 'Days of a report whose rows come from daily totals, because their events were deleted or soon will be.';
comment on column totaled_report_day.report is 'Report: views, downloads, error_rates, ai_queries or tenants.';
comment on column totaled_report_day.day is 'Day in UTC.';

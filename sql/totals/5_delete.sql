-- Deletes all daily totals.
truncate totaled_day;

truncate daily_view;

truncate daily_download;

truncate daily_error_rate;

truncate daily_ai_query;

truncate daily_tenant;

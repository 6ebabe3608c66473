-- The filters of an x-filter event, as a JSON object. Earlier versions stored no such events.
alter table event add column filters json;
alter table session_15min add column filter_count integer default 0;

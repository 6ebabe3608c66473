-- The rating and the text of an x-feedback event. Earlier versions stored no such events.
alter table event add column rating varchar;
alter table event add column feedback_text varchar;

-- The numbers of questions whose newest feedback is up, or down.
alter table daily_ai_query add column up_count bigint default 0;
alter table daily_ai_query add column down_count bigint default 0;

-- The vendor of the embed (context.vendor). Null for the embed of the service itself, and for earlier events.
alter table event add column vendor varchar;
alter table action add column vendor varchar;
alter table quarantine add column vendor varchar;
alter table session_15min add column vendor varchar;
alter table question_stage add column vendor varchar;

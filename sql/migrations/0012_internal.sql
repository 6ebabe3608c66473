-- Marks the events of internal people (internal.toml). Earlier events have null, which means false.
alter table event add column is_internal boolean;
alter table action add column is_internal boolean;
alter table session_15min add column is_internal boolean;
alter table question_stage add column is_internal boolean;

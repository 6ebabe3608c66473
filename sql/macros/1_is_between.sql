-- Whether a timestamp (UTC) is from first_at on and before end_at; null: no limit.
create or replace macro is_between(instant, first_at, end_at) as
((first_at is null or instant >= first_at) and (end_at is null or instant < end_at));

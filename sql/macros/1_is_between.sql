-- Whether a timestamp (UTC) is at or after first_at and before end_at. A null limit has no effect.
create or replace macro is_between(instant, first_at, end_at) as
((first_at is null or instant >= first_at) and (end_at is null or instant < end_at));

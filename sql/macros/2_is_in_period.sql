-- Whether a timestamp (UTC) is in the period: at or after `since` and before `until`.
create or replace macro is_in_period(instant) as
is_between(instant, getvariable('since')::timestamp, getvariable('until')::timestamp);

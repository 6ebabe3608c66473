-- Whether a timestamp (UTC) is in the period: from `since` on and before `until`.
create or replace macro is_in_period(instant) as
is_between(instant, getvariable('since')::timestamp, getvariable('until')::timestamp);

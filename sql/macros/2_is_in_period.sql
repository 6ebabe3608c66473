-- Whether an instant (UTC) lies in the period asked for, as event_in_scope has it: from `since` on and before `until`.
create or replace macro is_in_period(instant) as
is_between(instant, getvariable('since')::timestamp, getvariable('until')::timestamp);

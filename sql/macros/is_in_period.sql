-- Whether an instant (UTC) lies in the period asked for, as event_in_scope has it: from `since` on and before `until`.
create or replace macro is_in_period(instant) as
(getvariable('since') is null or instant >= getvariable('since')::timestamp)
and (getvariable('until') is null or instant < getvariable('until')::timestamp);

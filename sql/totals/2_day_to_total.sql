-- Selects the days to total: those of `expiring_day` and the days after them, if they have events. The answers to AI questions,
-- and the deployments of events, may depend on events of the day before, so a day is totaled before these are deleted.
-- A day has names if one of its events was received within a year: senders may invent any number of tenants and of days.
-- `since` and `until` enclose the days. `last_day` is the last day that has ended. Only the oldest days with about
-- `events_at_once` events are selected.
create or replace temp table day_to_total as
select occurred_at::date as day, bool_or(received_at < occurred_at + interval 1 year) as has_names
from event
where is_in_period(occurred_at)
  and occurred_at::date <= getvariable('last_day')::date
  and occurred_at::date in (select day from expiring_day union all select day + 1 from expiring_day)
  and occurred_at::date not in (from (select day from totaled_day))
group by occurred_at::date
qualify sum(count(*)) over (order by day) - count(*) < getvariable('events_at_once')::bigint;

-- One row per event in scope: its deployment, surface and tenant (event_at_any_time), and its time.
-- `since` and `until` are UTC; `until` itself is outside, so that periods meet without overlapping.
create or replace view event_in_scope as
select *
from event_at_any_time
where (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp)
  and (getvariable('until') is null or occurred_at < getvariable('until')::timestamp);

comment on view event_in_scope is
'Every event in scope: the session variables since, until, surface, deployments and tenant, where they are set.';

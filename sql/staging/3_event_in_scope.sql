-- One row per event in scope: its deployment and tenant (see the macro event_between), its surface, and its time.
-- `since` and `until` are UTC; `until` itself is outside, so that periods meet without overlapping.
create or replace view event_in_scope as
select *
from event_between(getvariable('since')::timestamp, getvariable('until')::timestamp)
where is_on_surface(surface);

comment on view event_in_scope is
'Every event in scope: the session variables since, until, surface, deployments and tenant, where they are set.';

-- One row per event before `until` of the deployments that may be seen, by what it says itself: a session's `ready` says it of
-- itself, too. Whether there is any tells since when there is something to compare with, and stops at the first. A
-- variable that nobody set is null, and bounds nothing.
create or replace view event_before as
select occurred_at
from event
where (getvariable('until') is null or occurred_at < getvariable('until')::timestamp)
  and is_in_deployments(deployment);

comment on view event_before is 'Every event before `until` of the deployments in scope, by the deployment that it names itself.';

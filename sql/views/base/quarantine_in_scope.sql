-- One row per kept rejection that the reader may see, newest first. One without a deployment is seen only where no
-- deployments are asked for. A variable that nobody set is null, and bounds nothing.
create or replace view quarantine_in_scope as
select *
from quarantine
where (getvariable('deployments') is null or list_contains(getvariable('deployments')::bigint[], deployment))
  and (getvariable('since') is null or received_at >= getvariable('since')::timestamp)
  and (getvariable('until') is null or received_at < getvariable('until')::timestamp)
  and (getvariable('tenant') is null or tenant = getvariable('tenant')::varchar)
order by arrival desc;

comment on view quarantine_in_scope is 'Kept rejections in scope, newest first.';

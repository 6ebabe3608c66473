-- One row per deployment in scope that a key, an event, an action or a dbt sync names. The variable key_deployments has one
-- element for each key and each deployment in its scope. Ordered by number, after the variable `after`, at most row_limit
-- rows. Times are times of receipt.
create or replace view deployment_in_scope as
with mention as (
    select
        unnest(getvariable('key_deployments')::bigint[]) as deployment,
        'key' as kind,
        null::timestamp as received_at
    where is_in_tenants(null)
    union all
    select deployment, 'event', received_at from event_at_any_time
    union all
    select deployment, 'action', received_at from action where is_in_tenants(tenant)
    union all
    select deployment, 'sync', received_at from sync where is_in_tenants(null)
)
select
    deployment,
    min(received_at) as first_seen_at,
    max(received_at) as last_seen_at,
    count(*) filter (kind = 'event') as event_count,
    count(*) filter (kind = 'action') as action_count,
    count(*) filter (kind = 'sync') as sync_count,
    count(*) filter (kind = 'key') as key_count
from mention
where deployment is not null
  and is_in_deployments(deployment)
  and (getvariable('after') is null or deployment > getvariable('after')::bigint)
group by deployment
order by deployment
limit (select coalesce(getvariable('row_limit')::bigint, 1000));

comment on view deployment_in_scope is
'Deployments in scope that a key, an event, an action or a dbt sync names: first and last receipt, and counts.';

-- Adds the deployments and tenants of the loaded `ready` events to session_ready: those from ingest_seq loaded_from on and
-- before loaded_until. The table stays empty until an event lacks what a `ready` event names; the load that detects it adds
-- all of them.
insert into ready_fact
with loaded as (
    select type, session, deployment, tenant
    from event
    where ingest_seq >= getvariable('loaded_from')::bigint and ingest_seq < getvariable('loaded_until')::bigint
    union all
    select null, session, deployment, '' -- a loss has no tenant to lack
    from loss
    where ingest_seq >= getvariable('loaded_from')::bigint and ingest_seq < getvariable('loaded_until')::bigint
),
fact as (
    select unnest([
        if(deployment is null, 'lacks_deployment', null),
        if(tenant is null, 'lacks_tenant', null),
        if(type = 'ready' and deployment is not null, 'ready_names_deployment', null),
        if(type = 'ready' and tenant is not null, 'ready_names_tenant', null)
    ]) as name
    from loaded
    where session is not null
)
select distinct name
from fact
where name is not null
  and name not in (select name from ready_fact);

-- A variable, so that the scan below is bounded by a constant. Null while no `ready` event is needed.
set variable ready_from = (
    select case
        when count(*) filter (name in ('lacks_deployment', 'ready_names_deployment')) < 2
            and count(*) filter (name in ('lacks_tenant', 'ready_names_tenant')) < 2 then null
        when exists (select 1 from session_ready) then getvariable('loaded_from')::bigint
        else -1
    end
    from ready_fact
);

merge into session_ready
using (
    select
        key_id,
        session,
        digest_of(session) as session_digest,
        min(deployment) as deployment_min,
        max(deployment) as deployment_max,
        min(tenant) as tenant_min,
        max(tenant) as tenant_max
    from event
    where type = 'ready'
      and session is not null
      and (deployment is not null or tenant is not null)
      and ingest_seq >= getvariable('ready_from')::bigint
      and (getvariable('ready_from')::bigint < 0 or ingest_seq < getvariable('loaded_until')::bigint)
    group by key_id, session
) as loaded
on session_ready.key_id = loaded.key_id and session_ready.session = loaded.session
when matched
    and (
        least(session_ready.deployment_min, loaded.deployment_min) is distinct from session_ready.deployment_min
        or greatest(session_ready.deployment_max, loaded.deployment_max) is distinct from session_ready.deployment_max
        or least(session_ready.tenant_min, loaded.tenant_min) is distinct from session_ready.tenant_min
        or greatest(session_ready.tenant_max, loaded.tenant_max) is distinct from session_ready.tenant_max
    )
    then update set
        deployment_min = least(session_ready.deployment_min, loaded.deployment_min),
        deployment_max = greatest(session_ready.deployment_max, loaded.deployment_max),
        tenant_min = least(session_ready.tenant_min, loaded.tenant_min),
        tenant_max = greatest(session_ready.tenant_max, loaded.tenant_max)
when not matched then insert by name;

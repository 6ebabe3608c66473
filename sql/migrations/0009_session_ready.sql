-- One row per key and session whose `ready` events name a deployment or a tenant: the minimum and the maximum of each. If they
-- differ, the `ready` events disagree. Empty until an event lacks a value that a `ready` event names (docs/decisions/0014).
create table session_ready (
    key_id         varchar,
    session        varchar,
    session_digest ubigint, -- the macro digest_of
    deployment_min bigint,
    deployment_max bigint,
    tenant_min     varchar,
    tenant_max     varchar
);

-- One row per fact that is true of any event or loss that has a session: lacks_deployment, lacks_tenant,
-- ready_names_deployment and ready_names_tenant.
create table ready_fact (name varchar);

insert into ready_fact
select 'lacks_deployment' where exists (select 1 from event where deployment is null and session is not null)
    or exists (select 1 from loss where deployment is null and session is not null)
union all
select 'lacks_tenant' where exists (select 1 from event where tenant is null and session is not null)
union all
select 'ready_names_deployment' where exists (select 1 from event where type = 'ready' and session is not null and deployment is not null)
union all
select 'ready_names_tenant' where exists (select 1 from event where type = 'ready' and session is not null and tenant is not null);

insert into session_ready
select
    key_id,
    session,
    (md5_number(session::varchar) & 18446744073709551615)::ubigint,
    min(deployment),
    max(deployment),
    min(tenant),
    max(tenant)
from event
where type = 'ready'
  and session is not null
  and (deployment is not null or tenant is not null)
  and (
      (select count(*) = 2 from ready_fact where name in ('lacks_deployment', 'ready_names_deployment'))
      or (select count(*) = 2 from ready_fact where name in ('lacks_tenant', 'ready_names_tenant'))
  )
group by key_id, session;

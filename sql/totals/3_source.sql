-- Stores the events of the days to total as the reports read them, and defines the sources of the totals. `since` and `until`
-- enclose the days, and all other variables of the scope are null.
--
-- The macros of the reports group by the column surface, and that of `tenants` by the column tenant. So these columns become
-- structs. In (surface, tenant), a null tenant stands for all tenants. In (day, tenant, deployment, surface), a null deployment or
-- surface stands for all of them.
create or replace temp table source_session as
select *, began_at::date as day, null::varchar as agent_id
from session_15min_in_scope
where day in (select day from day_to_total);

create or replace temp table source_event as
select occurred_at::date as day, occurred_at, type, deployment, tenant, null::varchar as agent_id, surface, format, target, viewer, row_count
from event_in_scope
where type = 'download'
  and day in (select day from day_to_total);

create or replace temp table source_ai_pair as
select *, occurred_at::date as day
from ai_pair
where day in (select day from day_to_total);

-- One row per row of a source. Senders may invent any number of tenants. So of each day that has names, only the `named_max`
-- combinations of tenant, deployment and agent with the most rows are named. In the other rows, the three columns are null.
create or replace temp macro with_names(source) as table
with named as (
    select day, tenant, deployment, agent_id
    from query_table(source)
    where coalesce(tenant, deployment::varchar, agent_id) is not null
      and day in (select day from day_to_total where has_names)
    group by day, tenant, deployment, agent_id
    qualify row_number() over (partition by day order by count(*) desc, tenant, deployment, agent_id)
        <= getvariable('named_max')::bigint
)
select
    source_row.* exclude (day) replace (
        if(named.day is null, null, source_row.tenant) as tenant,
        if(named.day is null, null, source_row.deployment) as deployment,
        if(named.day is null, null, source_row.agent_id) as agent_id
    )
from query_table(source) as source_row
left join named
    on source_row.day = named.day
    and source_row.tenant is not distinct from named.tenant
    and source_row.deployment is not distinct from named.deployment
    and source_row.agent_id is not distinct from named.agent_id;

create or replace temp view total_session as
select * exclude (agent_id)
from with_names('source_session');

create or replace temp view total_event as
select * exclude (agent_id)
from with_names('source_event');

create or replace temp view total_ai_pair as
from with_names('source_ai_pair');

-- One row per row of a source for all tenants together, and one more for its tenant.
create or replace temp macro by_tenant(source) as table
select * replace ({'surface': surface, 'tenant': if(is_by_tenant, tenant, null)} as surface)
from query_table(source)
cross join (values (false), (true)) as grouped (is_by_tenant)
where not is_by_tenant or tenant is not null;

create or replace temp view session_to_total as
from by_tenant('total_session');

create or replace temp view event_to_total as
from by_tenant('total_event');

create or replace temp view ai_pair_to_total as
from by_tenant('total_ai_pair');

create or replace temp view tenant_to_total as
select
    * replace (
        {
            'day': began_at::date,
            'tenant': tenant,
            'deployment': if(is_by_deployment, deployment, null),
            'surface': if(is_by_surface, surface, null)
        } as tenant
    )
from total_session
cross join (
    values (false, false), (false, true), (true, false), (true, true)
) as grouped (is_by_deployment, is_by_surface)
where (not is_by_deployment or deployment is not null) and (not is_by_surface or surface is not null);

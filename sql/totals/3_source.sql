-- Stores the events of the days to total as the reports read them, and defines the sources of the totals. `since` and `until`
-- enclose the days, and all other variables of the scope are null.
--
-- The reports group by surface, and `tenants` by tenant. So a surface together with a tenant, or a tenant together with a day,
-- a deployment and a surface, gives the rows of one of them. Null stands for all of them.
create or replace temp table total_session as
select *
from session_15min_in_scope
semi join day_to_total on session_15min_in_scope.began_at::date = day_to_total.day;

create or replace temp table total_event as
select occurred_at, type, deployment, tenant, surface, format, target, viewer, row_count
from event_in_scope
semi join day_to_total on event_in_scope.occurred_at::date = day_to_total.day
where type = 'download';

create or replace temp table total_ai_pair as
select *
from ai_pair
semi join day_to_total on ai_pair.occurred_at::date = day_to_total.day;

create or replace temp view session_to_total as
select * replace ({'surface': surface, 'tenant': if(is_by_tenant, tenant, null)} as surface)
from total_session
cross join (values (false), (true)) as grouped (is_by_tenant)
where not is_by_tenant or tenant is not null;

create or replace temp view event_to_total as
select * replace ({'surface': surface, 'tenant': if(is_by_tenant, tenant, null)} as surface)
from total_event
cross join (values (false), (true)) as grouped (is_by_tenant)
where not is_by_tenant or tenant is not null;

create or replace temp view ai_pair_to_total as
select * replace ({'surface': surface, 'tenant': if(is_by_tenant, tenant, null)} as surface)
from total_ai_pair
cross join (values (false), (true)) as grouped (is_by_tenant)
where not is_by_tenant or tenant is not null;

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

-- One row per fact (table ready_fact) of the events and losses with first_seq <= ingest_seq < end_seq, without a scope.
create or replace macro ready_fact_of_events(first_seq, end_seq) as table
select name
from (
    select
        unnest([
            if(bool_or(deployment is null), 'lacks_deployment', null),
            if(bool_or(tenant is null), 'lacks_tenant', null),
            if(bool_or(type = 'ready' and deployment is not null), 'ready_names_deployment', null),
            if(bool_or(type = 'ready' and tenant is not null), 'ready_names_tenant', null)
        ]) as name
    from (
        select ingest_seq, session, type, deployment, tenant from event
        union all
        select ingest_seq, session, null, deployment, '' from loss -- losses have no tenant, so they can't lack one
    )
    where session is not null and ingest_seq >= first_seq and ingest_seq < end_seq
)
where name is not null;

-- Of the arrivals from one on: whether some event of a session lacks a deployment, whether some `ready` names one, and the same
-- of tenants. Statistics of columns and of arrivals leave little to read.
select
    exists (
        select 1 from event
        where arrival >= getvariable('looked_from')::bigint and deployment is null and session is not null
    ),
    exists (
        select 1 from event
        where arrival >= getvariable('looked_from')::bigint and type = 'ready' and deployment is not null
    ),
    exists (
        select 1 from event
        where arrival >= getvariable('looked_from')::bigint and tenant is null and session is not null
    ),
    exists (
        select 1 from event
        where arrival >= getvariable('looked_from')::bigint and type = 'ready' and tenant is not null
    );

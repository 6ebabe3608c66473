-- Whether an event lacks a deployment or a tenant that a session's `ready` may supply (some event of a session lacks it, and
-- some `ready` names one). Column statistics mostly answer that without reading.
select exists (
    select 1 from event where deployment is null and session is not null
    and exists (select 1 from event where type = 'ready' and deployment is not null)
    union all
    select 1 from event where tenant is null and session is not null
    and exists (select 1 from event where type = 'ready' and tenant is not null)
);

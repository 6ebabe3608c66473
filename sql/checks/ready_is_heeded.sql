-- One row per key and session of which views show events without the deployment or the tenant that its `ready` events agree on.
-- What to do: the store was changed by hand, or the loader has a bug. Keep a copy of the data folder for the report, then
-- `embedsink rebuild`: it looks anew whether views need what `ready` says.
with said as (
    select
        key_id,
        session,
        if(min(deployment) = max(deployment), min(deployment), null) as deployment,
        if(min(tenant) = max(tenant), min(tenant), null) as tenant
    from event
    where type = 'ready' and session is not null
    group by key_id, session
)
select shown.key_id, shown.session, count(*) as event_count
from event_on_any_surface as shown
join said using (key_id, session)
where (shown.deployment is null and said.deployment is not null)
   or (shown.tenant is null and said.tenant is not null)
group by shown.key_id, shown.session
order by shown.key_id, shown.session;

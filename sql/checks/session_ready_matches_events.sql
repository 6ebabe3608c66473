-- One row per key and session for which session_ready differs from the `ready` events. Views take missing deployments and
-- tenants from that table. It is empty while no event lacks what a `ready` event names.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the report, then
-- `embedsink rebuild`: it fills the table again.
with named as (
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
    group by key_id, session
),
need as (
    select
        exists (from session_ready)
        or (
            exists (from named where deployment_min is not null)
            and (
                exists (from event where deployment is null and session is not null)
                or exists (from loss where deployment is null and session is not null)
            )
        )
        or (
            exists (from named where tenant_min is not null)
            and exists (from event where tenant is null and session is not null)
        ) as is_needed
),
expected as (
    select named.* from named join need on is_needed
)
select 'events' as only_in, * from (from expected except all from session_ready)
union all
select 'session_ready', * from (from session_ready except all from expected)
order by key_id, session, only_in;

-- One row per view event and dashboard-loaded event of the surface `dashboard` (no other tells when it has loaded) in
-- scope. is_loaded says of a view event whether its dashboard has loaded: whether the next event of its dashboard in its
-- deployment and session is a load, at most a day later. Of another dashboard's events nothing follows: several may stand
-- on one page. It is null while loading may still come (a minute, by the server's clock), where it can't be known (no
-- session, no public id), and for loads.
-- Pairs before it filters by tenant, so that a tenant's numbers are a part of the whole.
-- Looks beyond `until`, so that a dashboard that is viewed before midnight and loads after it is not a failure.
create or replace view dashboard_load as
with queued as (
    select
        *,
        -- What differs most comes first: rows are compared in this order, and that takes two thirds of the time.
        lead(if(type = 'dashboard-loaded', occurred_at, null)) over (
            partition by session, public_id, deployment order by occurred_at, seq, ingest_seq
        ) as next_load_at
    from dashboard_event
    where type in ('view', 'dashboard-loaded') and surface = 'dashboard'
)
select
    *,
    case
        when type <> 'view' or session is null or public_id is null then null
        when next_load_at <= occurred_at + interval 1 day then true
        when occurred_at + interval 1 minute
            > current_moment() then null
        else false
    end as is_loaded
from queued
where is_in_period(occurred_at) and is_of_tenant(tenant);

comment on view dashboard_load is
'View events and loads of dashboards in scope, and of each view event whether its dashboard has loaded.';

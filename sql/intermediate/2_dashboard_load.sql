-- One row per view event and dashboard-loaded event in scope on the surface `dashboard`; other surfaces send no loads.
-- is_loaded states for a view event whether the next event of its dashboard, deployment and session is a load, at most a day
-- later. It is null without a session or a public id, for loads, and in the first minute after a view event without a load.
-- Events after `until` are read, so that a dashboard viewed before midnight and loaded after it does not count as failed.
create or replace view dashboard_load as
with event_with_next_load as (
    select
        *,
        -- Session first: sql/README.md.
        lead(if(type = 'dashboard-loaded', occurred_at, null)) over (
            partition by session, public_id, deployment order by occurred_at, seq, ingest_seq
        ) as next_load_at
    from dashboard_event_of(timestamp '-infinity')
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
from event_with_next_load
where is_in_period(occurred_at) and is_of_tenant(tenant);

comment on view dashboard_load is
'View events and loads of dashboards in scope, and whether the dashboard of each view event loaded.';

-- One row per tenant with any event in scope; all events without a known tenant share one row. A drilldown, a download or an
-- AI answer is a value event. In a session with several tenants, only the events of the row's tenant count. Days are in the
-- reader's time zone. The rollups give exact results: no day begins inside a 15-minute interval, and every omitted gap is at
-- least 15 minutes long. tenant_value_time is materialized, so that tenant_activity does not take memory at the same time.
-- Traits: clock, windows.
create or replace macro tenants_of(source) as table
with tenant_activity as (
    select
        tenant,
        count(distinct viewer) as viewer_count,
        count(distinct day_of(began_at)) as active_day_count,
        sum(view_count)::bigint as view_count,
        min(first_at) as first_seen_at,
        max(last_at) as last_seen_at
    from query_table(source)
    group by tenant
),
session_quarter_hour as (
    select
        tenant,
        deployment,
        session,
        began_at,
        min(first_at) as first_at,
        max(last_at) as last_at,
        min(first_value_at) as first_value_at
    from query_table(source)
    where session is not null
    group by tenant, deployment, session, began_at
),
session_active_time as (
    select
        *,
        active_us(lag(last_at) over (partition by session, deployment, tenant order by began_at), first_at)
            + epoch_us(last_at) - epoch_us(first_at) as active_time_us
    from session_quarter_hour
),
session_value_time as (
    select
        tenant,
        deployment,
        session,
        first_value_at,
        -- Time to the last event of the 15-minute interval, without the part after the value event.
        sum(active_time_us) over (partition by session, deployment, tenant order by began_at)
            - (epoch_us(last_at) - epoch_us(first_value_at)) as time_to_value_us
    from session_active_time
),
tenant_value_time as materialized (
    select tenant, quantile_cont(time_to_value_us / 1e6, 0.5) as seconds_to_first_value_p50
    from (
        select tenant, min(time_to_value_us) as time_to_value_us
        from session_value_time
        where first_value_at is not null
        group by tenant, deployment, session
    )
    group by tenant
)
select tenant_activity.*, seconds_to_first_value_p50
from tenant_activity
left join tenant_value_time on tenant_activity.tenant is not distinct from tenant_value_time.tenant;

create or replace view tenants_of_events as
select
    *,
    -- If the period ends in the future, the current time replaces its end.
    last_seen_at < least(
        getvariable('until')::timestamp,
        current_moment()
    ) - interval 14 days as is_quiet
from tenants_of('session_15min_in_scope')
order by tenant;

create or replace view tenants as
with counted as (
    from tenants_of('session_15min_untotaled')
    union all by name
    select
        tenant,
        sole(viewer_count) as viewer_count,
        count(distinct day) as active_day_count,
        sum(view_count)::bigint as view_count,
        min(first_seen_at) as first_seen_at,
        max(last_seen_at) as last_seen_at,
        sole(seconds_to_first_value_p50) as seconds_to_first_value_p50
    from daily_tenant_in_scope
    group by tenant
)
select
    tenant,
    sole(counted.viewer_count) as viewer_count,
    sum(counted.active_day_count)::bigint as active_day_count,
    sum(counted.view_count)::bigint as view_count,
    min(counted.first_seen_at) as first_seen_at,
    max(counted.last_seen_at) as last_seen_at,
    sole(counted.seconds_to_first_value_p50) as seconds_to_first_value_p50,
    max(counted.last_seen_at) < least(
        getvariable('until')::timestamp,
        current_moment()
    ) - interval 14 days as is_quiet
from counted
group by tenant
order by tenant;

comment on view tenants is
'Tenants
Which tenants use the embed, how much, how soon do they get value from it, and which became inactive?
One row per tenant.';
comment on column tenants.tenant is
'Tenant; null for all events for which neither the host page nor the session''s ready event named one.';
comment on column tenants.viewer_count is 'Distinct viewers with any event in the period.';
comment on column tenants.active_day_count is 'Days with any event; days begin at midnight in the reader''s time zone.';
comment on column tenants.view_count is 'View events.';
comment on column tenants.first_seen_at is 'Time of the first event in the period, in UTC.';
comment on column tenants.last_seen_at is 'Time of the last event in the period, in UTC.';
comment on column tenants.seconds_to_first_value_p50 is
'Median active time from a session''s first event to its first drilldown, download or AI answer, computed like duration_s of sessions; null without such an event. Unit: s.';
comment on column tenants.is_quiet is
'Whether the tenant has no event in the last 14 days of the period. If the period ends in the future, the current time replaces its end.';

comment on view tenants_of_events is 'The report tenants without daily totals.';

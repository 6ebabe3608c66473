-- One row per view event, load and action of any tenant, from the start of the period to a day after its end. Actions are
-- downloads, drilldowns and errors. Actions without a public_id are included only before action_end. The views that use this
-- macro filter by tenant. public_id is the event's own. A load or action without one gets that of the last view event before it
-- in the same deployment, session and surface, at most a day earlier. It gets null if it has no session, or if that view
-- event has none. viewer and title are null for loads and actions without a public_id of their own. The day before `since`
-- is read, so that the dashboard of an event does not depend on the period. An impossible load duration or widget count
-- (negative, longer than a day, above 100,000, a fraction) is null.
create or replace macro dashboard_event_of(action_end) as table
with candidate as not materialized (
    select
        *,
        null_safe_key(deployment) as deployment_key,
        -- Events without a seq come last: seq is below 2^53.
        {occurred_at: occurred_at, seq: coalesce(seq, 9007199254740992), ingest_seq: ingest_seq} as sort_key
    from event_of_any_tenant
    where is_on_surface(surface)
      and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp - interval 1 day)
      and (getvariable('until') is null or occurred_at < getvariable('until')::timestamp + interval 1 day)
),
event_without_public_id as not materialized (
    from candidate
    where public_id is null
      and (type = 'dashboard-loaded' or (type in ('download', 'drilldown', 'error') and occurred_at < action_end))
),
assigned as (
    select * exclude (deployment_key, sort_key)
    from candidate
    where type = 'view' or (type in ('dashboard-loaded', 'download', 'drilldown', 'error') and public_id is not null)
    union all by name
    select
        event.* exclude (deployment_key, sort_key, viewer, title) replace (
            if(last_view.occurred_at >= event.occurred_at - interval 1 day, last_view.public_id, null) as public_id
        )
    from event_without_public_id as event
    asof left join (
        -- No null sessions: sql/README.md.
        from candidate
        where type = 'view' and session in (select session from event_without_public_id)
    ) as last_view
        -- Session first: sql/README.md.
        on event.session = last_view.session
        and event.surface = last_view.surface
        and event.deployment_key = last_view.deployment_key
        and event.sort_key >= last_view.sort_key
)
select * replace (
    if(type = 'dashboard-loaded', valid_duration_ms(load_duration_ms), null) as load_duration_ms,
    if(
        type = 'dashboard-loaded' and widget_count between 0 and 100000 and widget_count = floor(widget_count),
        widget_count, null
    ) as widget_count
)
from assigned
where getvariable('since') is null or occurred_at >= getvariable('since')::timestamp;

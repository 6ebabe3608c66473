-- One row per view event, per load, and per action (download, drilldown or error) before action_end, in the period and the day
-- after it, with its dashboard as public_id: its own, or else that of the last view event before it in the same deployment,
-- session and surface, at most a day earlier (ordered by occurred_at, seq and ingest_seq). In the protocol only view and
-- dashboard-loaded have a public_id. It is null without a session, or if that view event has none.
-- All tenants are included; readers filter by tenant afterwards, so that the numbers of a tenant are part of the total. The
-- day before `since` makes the result independent of the period. viewer and title are set only where the event has a public_id
-- of its own. An impossible load duration or widget count (negative, longer than a day, above 100,000, a fraction) is null.
create or replace macro dashboard_event_of(action_end) as table
with nearby as not materialized (
    select
        *,
        null_safe_key(deployment) as own_deployment,
        -- Events without a seq come last: seq is below 2^53.
        {occurred_at: occurred_at, seq: coalesce(seq, 9007199254740992), ingest_seq: ingest_seq} as turn
    from event_of_any_tenant
    where is_on_surface(surface)
      and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp - interval 1 day)
      and (getvariable('until') is null or occurred_at < getvariable('until')::timestamp + interval 1 day)
),
unnamed as not materialized (
    from nearby
    where public_id is null
      and (type = 'dashboard-loaded' or (type in ('download', 'drilldown', 'error') and occurred_at < action_end))
),
placed as (
    select * exclude (own_deployment, turn)
    from nearby
    where type = 'view' or (type in ('dashboard-loaded', 'download', 'drilldown', 'error') and public_id is not null)
    union all by name
    select
        event.* exclude (own_deployment, turn, viewer, title) replace (
            if(last_view.occurred_at >= event.occurred_at - interval 1 day, last_view.public_id, null) as public_id
        )
    from unnamed as event
    asof left join (
        -- No null sessions: sql/README.md.
        from nearby
        where type = 'view' and session in (select session from unnamed)
    ) as last_view
        -- Session first: sql/README.md.
        on event.session = last_view.session
        and event.surface = last_view.surface
        and event.own_deployment = last_view.own_deployment
        and event.turn >= last_view.turn
)
select * replace (
    if(type = 'dashboard-loaded', valid_duration_ms(load_duration_ms), null) as load_duration_ms,
    if(
        type = 'dashboard-loaded' and widget_count between 0 and 100000 and widget_count = floor(widget_count),
        widget_count, null
    ) as widget_count
)
from placed
where getvariable('since') is null or occurred_at >= getvariable('since')::timestamp;

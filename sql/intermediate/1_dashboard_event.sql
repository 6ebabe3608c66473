-- One row per event of the types that the dashboards are judged by, in the period and a day beyond `until`, with its
-- dashboard as public_id: its own, or else that of the view event before it in the same deployment, session and
-- surface, if that is at most a day older (events are ordered by occurred_at, seq and ingest_seq). Of the protocol's payloads
-- only view and dashboard-loaded carry one. Without a session, or where that view event named none, public_id is null.
-- Events of all tenants are here: readers filter by tenant afterwards, so that a tenant's numbers are a part of the whole.
-- The day makes the answer the same whatever period is asked for. The one beyond `until` is for dashboard_load.
-- Of downloads, drilldowns and errors without an id of their own those of the first day are enough where nobody asks for
-- their counts or for a tenant: they alone may belong to a dashboard of which nothing else is in the period.
-- viewer and title are told of what names its dashboard itself.
-- A load duration or widget count that can't be (negative, longer than a day, more than 100,000, a fraction) is null.
create or replace view dashboard_event as
with nearby as not materialized (
    select
        *,
        null_safe_key(deployment) as own_deployment,
        -- What has no number stands behind what has one: those are below 2^53.
        {occurred_at: occurred_at, seq: coalesce(seq, 9007199254740992), ingest_seq: ingest_seq} as place
    from event_of_any_tenant
    where is_on_surface(surface)
      and (getvariable('since') is null or occurred_at >= getvariable('since')::timestamp - interval 1 day)
      and (getvariable('until') is null or occurred_at < getvariable('until')::timestamp + interval 1 day)
),
unnamed as not materialized (
    from nearby
    where type in ('dashboard-loaded', 'download', 'drilldown', 'error')
      and public_id is null
      and (
          type = 'dashboard-loaded'
          or is_column_requested(['download_count', 'drilldown_count', 'error_count'])
          or getvariable('tenant') is not null
          or occurred_at < getvariable('since')::timestamp + interval 1 day
      )
),
placed as (
    select * exclude (own_deployment, place)
    from nearby
    where type = 'view'
       or (type in ('dashboard-loaded', 'download', 'drilldown', 'error') and public_id is not null)
    union all by name
    select
        event.* exclude (own_deployment, place, viewer, title) replace (
            if(viewed.occurred_at >= event.occurred_at - interval 1 day, viewed.public_id, null) as public_id
        )
    from unnamed as event
    asof left join (
        -- Without the null sessions, which must not meet: of a thousand rows they do in DuckDB 1.5.5.
        from nearby
        where type = 'view' and session is not null
          and is_column_requested(['download_count', 'drilldown_count', 'error_count'])
        union all
        from nearby
        where type = 'view' and session in (select session from unnamed)
          and not is_column_requested(['download_count', 'drilldown_count', 'error_count'])
    ) as viewed
        -- What differs most comes first: rows are compared in this order, and that takes half of the time.
        on event.session = viewed.session
        and event.surface = viewed.surface
        and event.own_deployment = viewed.own_deployment
        and event.place >= viewed.place
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

comment on view dashboard_event is
'View events, loads, downloads, drilldowns and errors, each with its dashboard, also where only the view before it tells.';

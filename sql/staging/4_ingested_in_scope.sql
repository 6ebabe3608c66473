-- One row per event, action and stored rejection in scope, unordered and without its text, for the inspector. These variables
-- limit the rows if they are set: ingest_seq above `after` and up to `up_to`; received at or after `since` and before `until`;
-- one session, type, key or outcome. Time is the time of receipt, because a client's clock does not tell the order of deliveries.
-- The deployment of events is resolved as in event_between. Actions and rejections have only that of their context; without
-- one they are visible only to readers of all deployments. The type of a rejection is unchecked text, so it is shortened.
create or replace view ingested_in_scope as
with rejected as (
    select *, try_cast(raw as json) as body
    from quarantine
    where is_in_deployments(deployment)
      and is_in_tenants(tenant)
      and is_of_tenant(tenant)
),
ingested as (
    select
        ingest_seq, 'accepted' as outcome, 'event' as direction, type, event_id as id, received_at, key_id, deployment, session,
        viewer, tenant, page, vendor, surface, seq
    from event_on_any_surface
    union all by name
    select
        ingest_seq, 'accepted' as outcome, 'action' as direction, type, action_id as id, received_at, key_id, deployment, session,
        viewer, tenant, page, vendor, seq
    from action
    where is_in_deployments(deployment)
      and is_in_tenants(tenant)
      and is_of_tenant(tenant)
    union all by name
    select
        ingest_seq, 'quarantined' as outcome, quarantine_id as id, received_at, key_id, deployment, session, viewer, tenant, page,
        vendor, reason, detail, replayed_at,
        if(coalesce(body ->> '$.direction', body ->> '$.events[0].direction') = 'action', 'action', 'event') as direction,
        left(
            regexp_replace(
                coalesce(
                    body ->> '$.type',
                    body ->> '$.events[0].type',
                    -- The end of a long text is in quarantine_rest, so the text here is not valid JSON.
                    if(raw_length > length(raw), nullif(regexp_extract(raw, '"type"\s*:\s*"([^"\\]{1,128})"', 1), ''), null)
                ),
                '^[^:]*:(event|action):(.)',
                '\2'
            ),
            128
        ) as type
    from rejected
)
select *
from ingested
where (getvariable('after') is null or ingest_seq > getvariable('after')::bigint)
  and (getvariable('up_to') is null or ingest_seq <= getvariable('up_to')::bigint)
  and (getvariable('since') is null or received_at >= getvariable('since')::timestamp)
  and (getvariable('until') is null or received_at < getvariable('until')::timestamp)
  and (getvariable('session') is null or session = getvariable('session')::varchar)
  and (getvariable('type') is null or type = getvariable('type')::varchar)
  and (getvariable('key_id') is null or key_id = getvariable('key_id')::varchar)
  and (getvariable('outcome') is null or outcome = getvariable('outcome')::varchar);

comment on view ingested_in_scope is
'Events, actions and stored rejections in scope by ingest_seq: outcome, type, sender, and the reason for a rejection.';

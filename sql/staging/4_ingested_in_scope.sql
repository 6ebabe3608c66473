-- One row per event, action and kept rejection in scope, in no order and without its text, for whoever looks at what arrives:
-- after the ingest_seq `after` and up to `up_to`, received from `since` on and before `until`, and of one session, type, key
-- or outcome where these are asked for. Time is the server's here, since a client's clock says nothing about what was sent last.
-- Events have the deployment that event_on_any_surface resolves; actions and rejections only what their context says, so
-- one that says nothing is seen only where no deployments are asked for. A variable that nobody set is null, and bounds
-- nothing. What was rejected may say anything about its type, so that is shortened.
create or replace view ingested_in_scope as
with rejected as (
    select *, try_cast(raw as json) as sent
    from quarantine
    where is_in_deployments(deployment)
      and is_of_tenant(tenant)
),
told as (
    select
        ingest_seq, 'accepted' as outcome, 'event' as direction, type, event_id as id, received_at, key_id, deployment, session,
        viewer, tenant, page, surface, seq
    from event_on_any_surface
    union all by name
    select
        ingest_seq, 'accepted' as outcome, 'action' as direction, type, action_id as id, received_at, key_id, deployment, session,
        viewer, tenant, page, seq
    from action
    where is_in_deployments(deployment)
      and is_of_tenant(tenant)
    union all by name
    select
        ingest_seq, 'quarantined' as outcome, quarantine_id as id, received_at, key_id, deployment, session, viewer, tenant, page,
        reason, detail, replayed_at,
        if(coalesce(sent ->> '$.direction', sent ->> '$.events[0].direction') = 'action', 'action', 'event') as direction,
        left(
            regexp_replace(
                coalesce(
                    sent ->> '$.type',
                    sent ->> '$.events[0].type',
                    -- Of a long one the end is elsewhere.
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
from told
where (getvariable('after') is null or ingest_seq > getvariable('after')::bigint)
  and (getvariable('up_to') is null or ingest_seq <= getvariable('up_to')::bigint)
  and (getvariable('since') is null or received_at >= getvariable('since')::timestamp)
  and (getvariable('until') is null or received_at < getvariable('until')::timestamp)
  and (getvariable('session') is null or session = getvariable('session')::varchar)
  and (getvariable('type') is null or type = getvariable('type')::varchar)
  and (getvariable('key_id') is null or key_id = getvariable('key_id')::varchar)
  and (getvariable('outcome') is null or outcome = getvariable('outcome')::varchar);

comment on view ingested_in_scope is
'Every event, action and kept rejection in scope by its ingest_seq: what became of it, what it was, whose, and why not.';

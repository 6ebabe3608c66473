-- The deployments that a load touches by way of sessions: a row without a deployment has that of its session's `ready`, and
-- a `ready` may give one, or a tenant, to rows that were there before. So all deployments that such sessions name, by the
-- same key, in the days in which ids are remembered (dedup_from): how much is read does not grow with history.
with loaded as (
    select key_id, session
    from event
    where ingest_seq >= getvariable('loaded_from')::bigint and ingest_seq < getvariable('loaded_until')::bigint
      and session is not null
      and (deployment is null or type = 'ready')
    union
    select key_id, session
    from loss
    where ingest_seq >= getvariable('loaded_from')::bigint and ingest_seq < getvariable('loaded_until')::bigint
      and session is not null
      and deployment is null
)
select distinct deployment
from event
where ingest_seq >= getvariable('dedup_from')::bigint
  and deployment is not null
  and (key_id, session) in (select (key_id, session) from loaded);

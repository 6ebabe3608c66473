-- Deployments that a load changes through sessions: a row without a deployment has that of its session's `ready` events, and a
-- `ready` event may give a deployment or tenant to stored rows. The result is all deployments that such sessions name, by the
-- same key, within the deduplication window (dedup_from). So the cost does not grow with history.
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

-- One row per key and session: what the session's `ready` said of the whole session (spec 6.4), whenever it did, where an
-- event from first_at on and before end_at needs it. Null bounds nothing.
-- By key as well, so that nobody lends a deployment to what another key sent. Where the `ready` events of a session
-- disagree it is null: a guess could show one deployment's events to another's readers.
-- No rows while no event lacks what a `ready` could supply: column statistics mostly answer that without reading, and
-- the join with nothing costs nothing. Without this, every report would pay for the join (docs/reports.md).
create or replace macro session_context_between(first_at, end_at) as table
with lacking as (
    select 1 from event where deployment is null and session is not null
    and exists (select 1 from event where type = 'ready' and deployment is not null)
    union all
    select 1 from event where tenant is null and session is not null
    and exists (select 1 from event where type = 'ready' and tenant is not null)
)
select
    key_id,
    session,
    if(min(deployment) = max(deployment), min(deployment), null) as deployment,
    if(min(tenant) = max(tenant), min(tenant), null) as tenant
from event
where type = 'ready'
  and session is not null
  and exists (select 1 from lacking)
  and (
      (first_at is null and end_at is null)
      or session in (
          select session
          from event
          where (first_at is not null or end_at is not null) -- else all of it would be read for nothing
            and (deployment is null or tenant is null)
            and (first_at is null or occurred_at >= first_at)
            and (end_at is null or occurred_at < end_at)
      )
  )
group by key_id, session;

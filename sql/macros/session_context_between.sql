-- One row per key and session: what the session's `ready` said of the whole session (spec 6.4), whenever it did, where an
-- event from first_at on and before end_at needs it. Null bounds nothing.
-- By key as well, so that nobody lends a deployment to what another key sent. Where the `ready` events of a session
-- disagree it is null: a guess could show one deployment's events to another's readers.
-- Until an event lacks what a `ready` says, that in plain/ stands in for it.
create or replace macro session_context_between(first_at, end_at) as table
select
    key_id,
    session,
    if(min(deployment) = max(deployment), min(deployment), null) as deployment,
    if(min(tenant) = max(tenant), min(tenant), null) as tenant
from event
where type = 'ready'
  and session is not null
  and (
      (first_at is null and end_at is null)
      or session in (
          select session
          from event
          where (first_at is not null or end_at is not null) -- else all of it would be read for nothing
            and (deployment is null or tenant is null)
            and is_between(occurred_at, first_at, end_at)
      )
  )
group by key_id, session;

-- One row per key and session: what the session's `ready` said of the whole session (spec 6.4), where that is needed.
-- By key as well, so that nobody lends a deployment to what another key sent. Where the `ready` events of a session
-- disagree it is null: a guess could show one deployment's events to another's readers.
-- No rows while no event lacks what a `ready` could supply: column statistics mostly answer that without reading, and
-- the join with nothing costs nothing. Without this, every report would pay for the join (docs/reports.md).
create or replace view session_context as
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
where type = 'ready' and session is not null and exists (select 1 from lacking)
group by key_id, session;

comment on view session_context is 'What the ready event of each session says of the whole session.';

-- One row per event, action and loss with first_seq <= ingest_seq < end_seq beyond its retention: with an ingest_seq below the
-- limit of its deployment, or else below `retention_below`. The deployments with a limit are in `retention_deployments`, and
-- their limits in `retention_below_of`, in the same order. Without `retention_below`, every row. The deployment is the one that
-- reports show: events and losses take a missing one from their session (session_context_between), actions don't.
-- The macro is temporary, because the snapshot of an earlier version does not have it.
create or replace temp macro row_beyond_retention(first_seq, end_seq) as table
with stored as (
    select
        'event' as kind,
        event_id as id,
        ingest_seq,
        key_id,
        session,
        if(deployment is null, session, null) as session_to_ask,
        seq,
        deployment,
        occurred_at,
        received_at
    from event
    where ingest_seq >= first_seq and ingest_seq < end_seq
    union all
    select 'action', action_id, ingest_seq, key_id, session, null, seq, deployment, occurred_at, received_at
    from action
    where ingest_seq >= first_seq and ingest_seq < end_seq
    union all
    select 'loss', loss_id, ingest_seq, key_id, session, if(deployment is null, session, null), null, deployment, received_at, received_at
    from loss
    where ingest_seq >= first_seq and ingest_seq < end_seq
),
deployment_limit as (
    select
        unnest(getvariable('retention_deployments')::bigint[]) as deployment,
        unnest(getvariable('retention_below_of')::bigint[]) as below
),
context as (
    select key_id, session, deployment
    from session_context_between(null, null)
    where getvariable('retention_deployments') is not null
),
resolved as (
    select stored.* replace (coalesce(stored.deployment, context.deployment) as deployment)
    from stored
    left join context
        on stored.session_to_ask = context.session
        and stored.key_id = context.key_id
)
select resolved.* exclude (session_to_ask)
from resolved
left join deployment_limit on resolved.deployment = deployment_limit.deployment
where getvariable('retention_below') is null
   or resolved.ingest_seq < coalesce(deployment_limit.below, getvariable('retention_below')::bigint);

-- One row per AI query in scope. The protocol has no query id, so stages pair by order: within one deployment, session, chat
-- and text, each end (completed or error) closes the oldest open `submitted`. An end without an open `submitted` is a row of
-- its own, without submitted_at.
-- Stages of all times, surfaces and tenants are paired, and the pairs are filtered afterwards: a question before midnight with
-- an answer after it is one row, and the rows of a tenant are part of the total.
create or replace view ai_pair as
with stage as materialized (
    select
        *,
        status = 'submitted' as is_question,
        lag(status = 'submitted') over turns as is_after_question,
        lead(
            {
                'is_question': status = 'submitted',
                'ingest_seq': ingest_seq,
                'occurred_at': occurred_at,
                'status': status,
                'surface': surface,
                'tenant': tenant,
                'viewer': viewer,
                'agent_id': agent_id
            }
        ) over turns as next_stage
    from ai_stage
    window turns as (partition by queue order by occurred_at, seq, ingest_seq)
),
-- Queues in which a question was submitted again before the previous one ended. Only these rare queues need the windows of
-- `placed`. In all others, questions and ends alternate, and an end belongs to the question directly before it.
mixed as (
    select distinct queue from stage where is_question and next_stage.is_question
),
-- Both stages of a query get the same position in the queue; orphans get negative positions.
placed as (
    select
        *,
        -- submitted minus closed falls to a new low each time that a closing stage finds none open.
        greatest(0, -min(submitted_so_far - closed_so_far) over before) as orphaned_before,
        case
            when is_question then submitted_so_far
            when submitted_so_far - closed_so_far < -orphaned_before then -1 - orphaned_before
            else closed_so_far - orphaned_before
        end as place,
        is_question
            and (next_stage.is_question or submitted_so_far - closed_so_far + orphaned_before > 1) as is_crowded
    from (
        select
            stage.*,
            -- Without `filter`, with which the engine counts each frame from its start: quadratic in the queue's length.
            count(if(is_question, 1, null)) over so_far as submitted_so_far,
            count(if(is_question, null, 1)) over so_far as closed_so_far
        from stage
        join mixed using (queue)
        window so_far as (
            partition by queue order by occurred_at, seq, ingest_seq
            rows between unbounded preceding and current row
        )
    )
    window before as (
        partition by queue order by occurred_at, seq, ingest_seq
        rows between unbounded preceding and 1 preceding
    )
),
paired as (
    -- An end directly after a question shares the question's row.
    select
        if(is_question, ingest_seq, null) as submitted_ingest_seq,
        if(is_question, next_stage.ingest_seq, ingest_seq) as finished_ingest_seq,
        deployment,
        if(is_question, coalesce(surface, next_stage.surface), surface) as surface,
        if(is_question, coalesce(tenant, next_stage.tenant), tenant) as tenant,
        if(is_question, coalesce(viewer, next_stage.viewer), viewer) as viewer,
        if(is_question, coalesce(next_stage.agent_id, agent_id), agent_id) as agent_id,
        if(is_question, occurred_at, null) as submitted_at,
        if(is_question, next_stage.occurred_at, occurred_at) as finished_at,
        if(is_question, next_stage.status, status) as finished_status,
        has_no_session as is_ambiguous
    from stage
    anti join mixed using (queue)
    where is_question or not coalesce(is_after_question, false)
    union all by name
    select
        any_value(deployment) as deployment,
        any_value(ingest_seq) filter (is_question) as submitted_ingest_seq,
        any_value(ingest_seq) filter (not is_question) as finished_ingest_seq,
        coalesce(any_value(surface) filter (is_question), any_value(surface)) as surface,
        coalesce(any_value(tenant) filter (is_question), any_value(tenant)) as tenant,
        coalesce(any_value(viewer) filter (is_question), any_value(viewer)) as viewer,
        coalesce(any_value(agent_id) filter (not is_question), any_value(agent_id)) as agent_id,
        any_value(occurred_at) filter (is_question) as submitted_at,
        any_value(occurred_at) filter (not is_question) as finished_at,
        any_value(status) filter (not is_question) as finished_status,
        bool_or(has_no_session) or coalesce(bool_or(is_crowded), false) as is_ambiguous
    from placed
    group by queue, place
)
select
    * exclude (finished_status),
    coalesce(submitted_at, finished_at) as occurred_at,
    case
        when finished_status is not null then finished_status
        -- The server's clock, in UTC, independent of the session's time zone; tests set their own.
        when submitted_at + interval 10 minutes
            > current_moment() then 'pending'
        else 'abandoned'
    end as status,
    (epoch_us(finished_at) - epoch_us(submitted_at)) // 1000 as latency_ms
from paired
where is_in_period(coalesce(submitted_at, finished_at))
  and is_on_surface(surface)
  and is_of_tenant(tenant);

comment on view ai_pair is
'AI queries in scope with their stages paired: when each was submitted, and when and how it ended.';

-- One row per AI query in scope. The protocol has no query id, so stages pair by order: within one deployment, session,
-- chat and text, each closing stage (completed, error) closes the oldest open `submitted`. A closing stage that finds
-- none open is a row of its own, without submitted_at.
-- Pairing looks at all times, and only then at the period: a question asked before midnight and answered after it is
-- one row, on the day before.
create or replace view ai_lifecycle as
with stage as materialized (
    from ai_stage
),
-- Each question with the next end of its queue, and each end that is next of none.
met as materialized (
    select
        coalesce(asked.queue, ended.queue) as queue,
        ended.arrival as end_arrival,
        if(asked.queue is null, ended.deployment, asked.deployment) as deployment,
        if(asked.queue is null, ended.session, asked.session) as session,
        if(asked.queue is null, ended.chat_id, asked.chat_id) as chat_id,
        if(asked.queue is null, ended.query, asked.query) as query,
        coalesce(asked.surface, ended.surface) as surface,
        coalesce(asked.viewer, ended.viewer) as viewer,
        coalesce(ended.agent_id, asked.agent_id) as agent_id,
        asked.occurred_at as submitted_at,
        ended.occurred_at as finished_at,
        ended.status as finished_status,
        least(asked.arrival, ended.arrival) as arrival,
        asked.occurred_at = ended.occurred_at
            or asked.deployment is distinct from ended.deployment or asked.session is distinct from ended.session
            or asked.chat_id is distinct from ended.chat_id or asked.query is distinct from ended.query as is_unsure
    from (from stage where status = 'submitted') as asked
    asof full join (from stage where status <> 'submitted') as ended
        on asked.queue = ended.queue and asked.occurred_at <= ended.occurred_at
),
-- Queues in which questions and ends don't come by turns, one at a time: some end is next of none or of two, or two
-- questions have none. They are few, so the others are spared all windows.
mixed as (
    select distinct queue
    from (
        select queue
        from met
        group by queue, end_arrival
        having count(submitted_at) <> 1 or (end_arrival is not null and bool_or(is_unsure))
    )
),
-- Both stages of a query get the same place in the queue; orphans get negative ones.
placed as (
    select
        *,
        -- submitted minus closed falls to a new low each time that a closing stage finds none open.
        greatest(0, -min(submitted_so_far - closed_so_far) over before) as orphaned_before,
        case
            when status = 'submitted' then submitted_so_far
            when submitted_so_far - closed_so_far < -orphaned_before then -1 - orphaned_before
            else closed_so_far - orphaned_before
        end as place,
        status = 'submitted'
            and (next_status = 'submitted' or submitted_so_far - closed_so_far + orphaned_before > 1) as is_crowded
    from (
        select
            *,
            -- Not with `filter`: the engine then counts each frame from its start, which takes the square of a queue's length.
            count(if(status = 'submitted', 1, null)) over so_far as submitted_so_far,
            count(if(status <> 'submitted', 1, null)) over so_far as closed_so_far,
            lead(status) over so_far as next_status
        from stage
        where queue in (from mixed)
        window so_far as (
            partition by deployment, session, chat_id, query order by occurred_at, seq, arrival
            rows between unbounded preceding and current row
        )
    )
    window before as (
        partition by deployment, session, chat_id, query order by occurred_at, seq, arrival
        rows between unbounded preceding and 1 preceding
    )
),
paired as (
    select *, session is null as is_ambiguous from met anti join mixed using (queue)
    union all by name
    select
        deployment,
        session,
        chat_id,
        query,
        coalesce(any_value(surface) filter (status = 'submitted'), any_value(surface)) as surface,
        coalesce(any_value(viewer) filter (status = 'submitted'), any_value(viewer)) as viewer,
        coalesce(any_value(agent_id) filter (status <> 'submitted'), any_value(agent_id)) as agent_id,
        min(occurred_at) filter (status = 'submitted') as submitted_at,
        min(occurred_at) filter (status <> 'submitted') as finished_at,
        any_value(status) filter (status <> 'submitted') as finished_status,
        session is null or coalesce(bool_or(is_crowded), false) as is_ambiguous,
        min(arrival) as arrival
    from placed
    group by deployment, session, chat_id, query, place
)
select
    * exclude (queue, end_arrival, is_unsure, finished_status),
    coalesce(submitted_at, finished_at) as occurred_at,
    case
        when finished_status is not null then finished_status
        -- The server's clock, in UTC whatever the time zone of the session; tests set their own.
        when submitted_at + interval 10 minutes
            > current_moment() then 'pending'
        else 'abandoned'
    end as status,
    (epoch_us(finished_at) - epoch_us(submitted_at)) // 1000 as latency_ms
from paired
where is_in_period(coalesce(submitted_at, finished_at));

comment on view ai_lifecycle is 'Every AI query in scope, its stages paired: when it was asked, when and how it ended.';

-- One row per AI query in scope. The protocol has no query id, so stages pair by order: within one deployment, session,
-- chat and text, each closing stage (completed, error) closes the oldest open `submitted`. A closing stage that finds
-- none open is a row of its own, without submitted_at.
-- Pairing looks at all times, and only then at the period: a question asked before midnight and answered after it is
-- one row, on the day before.
create or replace view ai_lifecycle as
with counted as (
    select
        *,
        count(*) filter (status = 'submitted') over so_far as submitted_so_far,
        count(*) filter (status <> 'submitted') over so_far as closed_so_far,
        lead(status) over so_far as next_status
    from ai_stage
    window so_far as (
        partition by deployment, session, chat_id, query order by occurred_at, seq, arrival
        rows between unbounded preceding and current row
    )
),
-- Sessions in which any closing stage finds none open. They are few, so the others are spared a second sort.
orphaned as (
    select distinct coalesce(session, '') as session from counted where closed_so_far > submitted_so_far
),
-- submitted minus closed falls to a new low each time that a closing stage finds none open.
reflected as (
    select *, 0 as orphaned_before from counted where coalesce(session, '') not in (from orphaned)
    union all
    select *, greatest(0, -min(submitted_so_far - closed_so_far) over before) as orphaned_before
    from counted
    where coalesce(session, '') in (from orphaned)
    window before as (
        partition by deployment, session, chat_id, query order by occurred_at, seq, arrival
        rows between unbounded preceding and 1 preceding
    )
),
-- Both stages of a query get the same place in the queue; orphans get negative ones.
placed as (
    select
        *,
        case
            when status = 'submitted' then submitted_so_far
            when submitted_so_far - closed_so_far < -orphaned_before then -1 - orphaned_before
            else closed_so_far - orphaned_before
        end as place,
        status = 'submitted'
            and (next_status = 'submitted' or submitted_so_far - closed_so_far + orphaned_before > 1) as is_crowded
    from reflected
),
paired as (
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
    * exclude (finished_status),
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
where (getvariable('since') is null or coalesce(submitted_at, finished_at) >= getvariable('since')::timestamp)
  and (getvariable('until') is null or coalesce(submitted_at, finished_at) < getvariable('until')::timestamp);

comment on view ai_lifecycle is 'Every AI query in scope, its stages paired: when it was asked, when and how it ended.';

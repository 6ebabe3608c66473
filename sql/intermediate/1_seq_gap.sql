-- One row per event in scope that follows a gap in its session, with the number of missing events. A gap is in the numbers
-- `seq`, which start at 0. Events outside the scope and actions fill gaps too. A gap before an action counts at the next
-- event. A gap before several events with one number counts at the first of them. Numbers of a million or more are
-- ignored: no session has that many events, and a sender could claim any number of losses. Numbers up to the
-- highest one that was deleted after its retention are not missing. Numbers more than 30 days outside the period don't count,
-- so that the cost does not grow with history (docs/decisions/0032).
create or replace view seq_gap as
-- For speed, first exclude most sessions without a gap: in a bit mask of their numbers, all bits are ones.
with session_with_possible_gap as (
    select key_id, session
    from event_in_scope
    where session is not null and seq between 0 and 999999
    group by key_id, session
    having max(seq) > 62 or bit_or(1::ubigint << least(seq, 62)::ubigint) <> (1::ubigint << (max(seq) + 1)::ubigint) - 1
),
numbered_envelope as (
    from (
        select key_id, session, seq, occurred_at, ingest_seq, ingest_seq as event_ingest_seq from event
        union all
        select key_id, session, seq, occurred_at, ingest_seq, null from action
    )
    where is_between(
        occurred_at, getvariable('since')::timestamp - interval 30 days, getvariable('until')::timestamp + interval 30 days
    )
    union all
    -- Erased numbers have no time. They are not filtered by it, because row groups are only skipped without `or`.
    select key_id, session, seq, null, null, null from erased_seq
),
gap as (
    select
        greatest(seq - 1 - greatest(lag(seq, 1, -1) over numbers, coalesce(last_seq, -1)), 0) as missing_count,
        first_value(event_ingest_seq ignore nulls) over (numbers rows between current row and unbounded following) as ingest_seq
    from numbered_envelope
    left join expired_session using (key_id, session)
    where seq between 0 and 999999
      and session in (select session from session_with_possible_gap)
    window numbers as (partition by key_id, session order by seq, occurred_at, ingest_seq)
    qualify missing_count > 0
)
select event_in_scope.occurred_at, event_in_scope.deployment, gap.missing_count
from event_in_scope
join gap using (ingest_seq);

comment on view seq_gap is 'Events in scope with missing events before them in their session, and how many.';

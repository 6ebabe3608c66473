-- One row per stage of an AI query (an ai-query event) in the period, and per stage at any other time of the sessions that
-- these are of: what stages are paired from. Events without a session are one session here. `queue` is a number for the
-- stages of one deployment, session, chat and text; hardly ever, two such have the same.
-- Those of other times are found first, by a number for their session, and read then: they are few, and near in the table.
-- What is found too much does no harm, as the scope is applied then, and queues lie within sessions: so the table will do.
create or replace view ai_stage as
select *, hash(deployment, session, chat_id, query) as queue
from (
    select *
    from event_in_scope
    where type = 'ai-query'
    union all
    select *
    from event_at_any_time
    where type = 'ai-query'
      and not is_in_period(occurred_at)
      and arrival in (
          select arrival
          from event
          where type = 'ai-query'
            and not is_in_period(occurred_at)
            and hash(session) in (select hash(session) from event_in_scope where type = 'ai-query')
      )
);

comment on view ai_stage is
'Every stage of an AI query in scope, and those of the same sessions at any other time.';

-- One row per stage of an AI query (an ai-query event) in the period, and per stage at any other time of the sessions that
-- these are of: what stages are paired from. Events without a session are one session here.
-- Those of other times are found by their session first, and read then: they are few, and near in the table.
create or replace view ai_stage as
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
      from event_at_any_time
      where type = 'ai-query'
        and not is_in_period(occurred_at)
        and coalesce(session, '') in (select coalesce(session, '') from event_in_scope where type = 'ai-query')
  );

comment on view ai_stage is 'Every stage of an AI query in scope, and those of the same sessions at any other time.';

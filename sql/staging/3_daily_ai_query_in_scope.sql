-- One row per day, deployment, surface, agent and tenant of the daily totals in scope of the report ai_queries.
create or replace view daily_ai_query_in_scope as
from daily_total_in_scope('daily_ai_query');

comment on view daily_ai_query_in_scope is 'Daily totals in scope of the report ai_queries.';

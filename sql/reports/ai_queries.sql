-- One row per period, deployment, surface and agent for which an AI query began.
-- Rates are of the queries that are over: completed, error and abandoned. An abandoned query is a failure. Pending ones are
-- in neither rate, since they may still get an answer.
-- Traits: clock, windows.
create or replace view ai_queries as
select
    period_of(occurred_at) as period_start,
    deployment,
    surface,
    agent_id,
    count(submitted_at) as submitted_count,
    count(*) filter (status = 'completed') as completed_count,
    count(*) filter (status = 'error') as error_count,
    count(*) filter (status = 'abandoned') as abandoned_count,
    count(*) filter (status = 'pending') as pending_count,
    completed_count / nullif(completed_count + error_count + abandoned_count, 0) as answer_rate,
    (error_count + abandoned_count) / nullif(completed_count + error_count + abandoned_count, 0) as failure_rate,
    quantile_cont(latency_ms, 0.5) filter (status = 'completed') as completed_latency_p50_ms,
    quantile_cont(latency_ms, 0.95) filter (status = 'completed') as completed_latency_p95_ms,
    quantile_cont(latency_ms, 0.5) as latency_p50_ms,
    quantile_cont(latency_ms, 0.95) as latency_p95_ms
from ai_pair
group by period_start, deployment, surface, agent_id
order by period_start, deployment, surface, agent_id;

comment on view ai_queries is
'AI queries
How many AI questions are asked, how many get an answer, and how fast?
One row per period, deployment, surface and agent.';
comment on column ai_queries.period_start is
'Start of the hour, day, week (Monday) or month in which the queries began, in UTC.';
comment on column ai_queries.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column ai_queries.surface is 'Surface on which the questions were asked.';
comment on column ai_queries.agent_id is
'Agent that answered; null when none is known, as for most abandoned queries.';
comment on column ai_queries.submitted_count is 'Queries that were seen being asked.';
comment on column ai_queries.completed_count is
'Queries that were answered, also those of which only the answer was seen.';
comment on column ai_queries.error_count is 'Queries that failed, also those of which only the failure was seen.';
comment on column ai_queries.abandoned_count is 'Queries without an end 10 minutes after they were asked.';
comment on column ai_queries.pending_count is 'Queries without an end so far, asked less than 10 minutes ago.';
comment on column ai_queries.answer_rate is
'completed_count of completed, error and abandoned together; null when there are none. Unit: share.';
comment on column ai_queries.failure_rate is
'error_count and abandoned_count of completed, error and abandoned together; null when there are none. Unit: share.';
comment on column ai_queries.completed_latency_p50_ms is
'Median time from asked to completed, exact; null when no query has both. Unit: ms.';
comment on column ai_queries.completed_latency_p95_ms is
'95th percentile of the time from asked to completed, exact; null when no query has both. Unit: ms.';
comment on column ai_queries.latency_p50_ms is
'Median time from asked to completed or failed, exact; null when no query has both. Unit: ms.';
comment on column ai_queries.latency_p95_ms is
'95th percentile of the time from asked to completed or failed, exact; null when no query has both. Unit: ms.';

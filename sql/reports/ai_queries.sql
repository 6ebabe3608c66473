-- One row per period, deployment, surface and agent with an AI query that began in the period. The rates divide by the
-- finished queries: completed, failed and abandoned. An abandoned query is a failure. Pending queries are in neither rate,
-- because they may still be answered.
-- ai_queries_by_directory is also per department and group of the viewer, as requested. Its source has these two columns, and
-- `columns` selects them if they exist.
-- Traits: clock, windows.
create or replace macro ai_queries_of(source) as table
select
    period_of(occurred_at) as period_start,
    deployment,
    surface,
    columns(lambda name: name in ('agent_id', 'department', 'group')),
    count(submitted_at) as submitted_count,
    count(*) filter (status = 'completed') as completed_count,
    count(*) filter (status = 'error') as error_count,
    count(*) filter (status = 'abandoned') as abandoned_count,
    count(*) filter (status = 'pending') as pending_count,
    count(*) filter (rating = 'up') as up_count,
    count(*) filter (rating = 'down') as down_count,
    completed_count / nullif(completed_count + error_count + abandoned_count, 0) as answer_rate,
    (error_count + abandoned_count) / nullif(completed_count + error_count + abandoned_count, 0) as failure_rate,
    quantile_cont(latency_ms, 0.5) filter (status = 'completed') as completed_latency_p50_ms,
    quantile_cont(latency_ms, 0.95) filter (status = 'completed') as completed_latency_p95_ms,
    quantile_cont(latency_ms, 0.5) as latency_p50_ms,
    quantile_cont(latency_ms, 0.95) as latency_p95_ms
from query_table(source)
group by all
order by period_start, deployment, surface, columns(lambda name: name in ('agent_id', 'department', 'group'));

create or replace view ai_queries_of_events as
from ai_queries_of('ai_pair');

create or replace view ai_queries as
with counted as (
    select * exclude (answer_rate, failure_rate) from ai_queries_of('ai_pair_untotaled')
    union all by name
    select * exclude (day, tenant) from daily_ai_query_in_scope
)
select
    period_start,
    deployment,
    surface,
    agent_id,
    sum(counted.submitted_count)::bigint as submitted_count,
    sum(counted.completed_count)::bigint as completed_count,
    sum(counted.error_count)::bigint as error_count,
    sum(counted.abandoned_count)::bigint as abandoned_count,
    sum(counted.pending_count)::bigint as pending_count,
    sum(counted.up_count)::bigint as up_count,
    sum(counted.down_count)::bigint as down_count,
    sum(counted.completed_count)::bigint
        / nullif(sum(counted.completed_count + counted.error_count + counted.abandoned_count)::bigint, 0) as answer_rate,
    sum(counted.error_count + counted.abandoned_count)::bigint
        / nullif(sum(counted.completed_count + counted.error_count + counted.abandoned_count)::bigint, 0) as failure_rate,
    sole(completed_latency_p50_ms) as completed_latency_p50_ms,
    sole(completed_latency_p95_ms) as completed_latency_p95_ms,
    sole(latency_p50_ms) as latency_p50_ms,
    sole(latency_p95_ms) as latency_p95_ms
from counted
group by period_start, deployment, surface, agent_id
order by period_start, deployment, surface, agent_id;

create or replace view ai_queries_by_directory as
from ai_queries_of('ai_pair_by_directory');

comment on view ai_queries is
'AI queries
How many AI questions are asked, how many are answered, and how fast?
One row per period, deployment, surface and agent.';
comment on column ai_queries.period_start is
'Start of the hour, day, week (Monday) or month in which the queries began, in UTC.';
comment on column ai_queries.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column ai_queries.surface is 'Surface on which the questions were asked.';
comment on column ai_queries.agent_id is
'Agent that answered; null when no agent is known, as for most abandoned queries.';
comment on column ai_queries.submitted_count is 'Queries with a submitted event.';
comment on column ai_queries.completed_count is 'Answered queries, including those without a submitted event.';
comment on column ai_queries.error_count is 'Failed queries, including those without a submitted event.';
comment on column ai_queries.abandoned_count is
'Queries without an answer or an error 10 minutes after they were submitted.';
comment on column ai_queries.pending_count is
'Queries without an answer or an error yet, submitted less than 10 minutes ago.';
comment on column ai_queries.up_count is 'Queries whose newest feedback is up.';
comment on column ai_queries.down_count is 'Queries whose newest feedback is down.';
comment on column ai_queries.answer_rate is
'completed_count ÷ (completed_count + error_count + abandoned_count); null without such queries. Unit: share.';
comment on column ai_queries.failure_rate is
'(error_count + abandoned_count) ÷ (completed_count + error_count + abandoned_count); null without such queries. Unit: share.';
comment on column ai_queries.completed_latency_p50_ms is
'Median time from submitted to completed, exact; null when no query has both. Unit: ms.';
comment on column ai_queries.completed_latency_p95_ms is
'95th percentile of the time from submitted to completed, exact; null when no query has both. Unit: ms.';
comment on column ai_queries.latency_p50_ms is
'Median time from submitted to completed or failed, exact; null when no query has both. Unit: ms.';
comment on column ai_queries.latency_p95_ms is
'95th percentile of the time from submitted to completed or failed, exact; null when no query has both. Unit: ms.';

comment on view ai_queries_of_events is 'The report ai_queries without daily totals.';

comment on view ai_queries_by_directory is 'The report ai_queries with the dimensions that `by` requests, for the requested people.';
comment on column ai_queries_by_directory.department is
'Department of the viewer in the directory; null without one, or unless `by` has `department`.';
comment on column ai_queries_by_directory."group" is
'Group of the viewer in the directory; null without one, or unless `by` has `group`. A viewer counts in each group, so rows do not add up.';

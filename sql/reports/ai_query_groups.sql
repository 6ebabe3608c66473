-- One row per deployment and query shape (macro shape_of), over the whole period.
-- Traits: clock, windows.
create or replace view ai_query_groups as
select
    deployment,
    query_shape,
    count(submitted_at) as asked_count,
    count(*) filter (status = 'completed') as answered_count,
    count(*) filter (status = 'error') as failed_count,
    count(*) filter (status = 'abandoned') as abandoned_count,
    count(*) filter (is_followed_by_action) as followed_by_action_count,
    count(*) filter (status = 'completed' and is_followed_by_action) as acted_on_count,
    count(*) filter (is_asked_again) as asked_again_count,
    count(distinct session) as session_count,
    count(distinct viewer) as viewer_count,
    string_agg(distinct surface, ', ' order by surface) as surfaces,
    arg_max(query, (occurred_at, ingest_seq)) as example_query
from ai_follow_up
group by deployment, query_shape
order by asked_count desc, deployment, query_shape;

comment on view ai_query_groups is
'AI query groups
Which questions are asked repeatedly, are they answered, and do people act on the answers?
One row per deployment and query shape.';
comment on column ai_query_groups.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column ai_query_groups.query_shape is
'Text that the questions share: in lowercase, with # for each number and id, "…" for each quoted part, and single spaces.';
comment on column ai_query_groups.asked_count is 'Questions with a submitted event.';
comment on column ai_query_groups.answered_count is 'Answered questions, including those without a submitted event.';
comment on column ai_query_groups.failed_count is 'Failed questions, including those without a submitted event.';
comment on column ai_query_groups.abandoned_count is
'Questions without an answer or an error 10 minutes after they were submitted.';
comment on column ai_query_groups.followed_by_action_count is
'Questions with a drilldown or download in the same session within 10 minutes of their end, or of their start when they have no end.';
comment on column ai_query_groups.acted_on_count is
'Answered questions with a drilldown or download in the same session within 10 minutes of the answer.';
comment on column ai_query_groups.asked_again_count is
'Questions that the same session repeated, in the same shape, within 10 minutes.';
comment on column ai_query_groups.session_count is
'Distinct sessions with such a question, including those without a submitted event.';
comment on column ai_query_groups.viewer_count is
'Distinct viewers with such a question, including those without a submitted event.';
comment on column ai_query_groups.surfaces is 'Surfaces on which the questions were asked, in alphabetical order.';
comment on column ai_query_groups.example_query is 'Latest of the questions, as it was typed.';

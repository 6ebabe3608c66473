-- One row per deployment and query shape (see the macro shape_of), over the whole period asked for: ask, answer, act.
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
'Ask, answer, act
Which questions are asked again and again, do they get an answer, and does anybody act on it?
One row per deployment and query shape.';
comment on column ai_query_groups.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column ai_query_groups.query_shape is
'What the questions have in common once case, spacing, numbers, ids and quoted parts are folded.';
comment on column ai_query_groups.asked_count is 'Questions that were seen being asked.';
comment on column ai_query_groups.answered_count is 'Questions that were answered, also those of which only the answer was seen.';
comment on column ai_query_groups.failed_count is 'Questions that failed, also those of which only the failure was seen.';
comment on column ai_query_groups.abandoned_count is 'Questions without an end 10 minutes after they were asked.';
comment on column ai_query_groups.followed_by_action_count is
'Questions whose session drilled down or downloaded within 10 minutes after the end, or after asking where no end was seen.';
comment on column ai_query_groups.acted_on_count is
'Answered questions whose session drilled down or downloaded within 10 minutes after the answer.';
comment on column ai_query_groups.asked_again_count is
'Questions whose session asked one of the same shape within 10 minutes after they were asked.';
comment on column ai_query_groups.session_count is 'Distinct sessions with such a question, also where only its end was seen.';
comment on column ai_query_groups.viewer_count is 'Distinct viewers with such a question, also where only its end was seen.';
comment on column ai_query_groups.surfaces is 'Surfaces on which it was asked, in the order of the alphabet.';
comment on column ai_query_groups.example_query is 'The latest of the questions, as it was typed.';

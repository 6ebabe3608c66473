-- One row per AI query (ai_lifecycle), in the order in which the queries began.
-- Traits: clock, windows.
create or replace view ai_query as
select
    deployment,
    surface,
    session,
    viewer,
    chat_id,
    agent_id,
    query,
    submitted_at,
    finished_at,
    status,
    latency_ms,
    is_ambiguous,
    rating,
    feedback_text,
    ingest_seq
from ai_lifecycle
order by occurred_at, ingest_seq;

comment on view ai_query is
'AI query log
Which questions were asked, and what was the result of each?
One row per AI query.';
comment on column ai_query.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column ai_query.surface is
'Surface on which the question was asked: dashboard, app or chat.';
comment on column ai_query.session is 'Session of the viewer.';
comment on column ai_query.viewer is 'Viewer who asked.';
comment on column ai_query.chat_id is 'Chat in which the question was asked.';
comment on column ai_query.agent_id is 'Agent that answered; without an answer, the agent that was asked.';
comment on column ai_query.query is 'Text of the question, as it was typed.';
comment on column ai_query.submitted_at is 'Time of the submitted event, in UTC; null when no submitted event arrived.';
comment on column ai_query.finished_at is 'Time of the answer or the error, in UTC; null when neither arrived.';
comment on column ai_query.status is
'completed or error; otherwise pending until 10 minutes after submitted_at by the server''s clock, then abandoned.';
comment on column ai_query.latency_ms is
'Time from submitted_at to finished_at; null when one of them is null. Unit: ms.';
comment on column ai_query.is_ambiguous is
'Whether its events may belong to another query: the session is unknown, or it had the same question open twice at the same time.';
comment on column ai_query.rating is
'Newest feedback on the question (x-feedback): up or down; null without feedback in the 24 hours after the question.';
comment on column ai_query.feedback_text is 'Text of this feedback; null without one.';
comment on column ai_query.ingest_seq is 'Position in the order of ingestion; a stable key for paging.';

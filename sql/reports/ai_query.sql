-- One row per AI query, as ai_lifecycle pairs its stages, in the order in which the queries began.
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
    ingest_seq
from ai_lifecycle
order by occurred_at, ingest_seq;

comment on view ai_query is
'AI queries, one by one
What was asked, and what became of each question?
One row per AI query.';
comment on column ai_query.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column ai_query.surface is
'Surface on which the question was asked: app inside the app, chat on the standalone chat.';
comment on column ai_query.session is 'Session of the viewer.';
comment on column ai_query.viewer is 'Viewer who asked.';
comment on column ai_query.chat_id is 'Chat in which it was asked.';
comment on column ai_query.agent_id is 'Agent that answered; before that, the agent that was asked.';
comment on column ai_query.query is 'The question, as it was typed.';
comment on column ai_query.submitted_at is 'When it was asked, in UTC; null when only its end was seen.';
comment on column ai_query.finished_at is 'When it was completed or failed, in UTC; null when neither was seen.';
comment on column ai_query.status is
'completed or error; pending until 10 minutes after it was asked, by the server''s clock; then abandoned.';
comment on column ai_query.latency_ms is 'From asked to finished; null when one of them is unknown. Unit: ms.';
comment on column ai_query.is_ambiguous is
'Whether its stages may belong to another query: no session is known, or the same question was open twice at once.';
comment on column ai_query.ingest_seq is 'Order of ingest_seq; a stable key for paging.';

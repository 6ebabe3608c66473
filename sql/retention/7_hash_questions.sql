-- Replaces the texts of the AI questions and of the feedback in `question_text` by the hashes in `question_hash`. The stages of a
-- question that were loaded later, with an ingest_seq below `expire_with`, get the same text. Otherwise, they would not belong to it.
create or replace temp table hashed_stage as
select event.ingest_seq, question_hash.hash
from event
join question_text as question
    on event.key_id is not distinct from question.key_id
    and event.session is not distinct from question.session
    and event.chat_id is not distinct from question.chat_id
    and coalesce(event.query, event.feedback_text) = question.query
join question_hash on question.query = question_hash.query
where event.type in ('ai-query', 'x-feedback') and event.ingest_seq < getvariable('expire_with')::bigint;

update event
set
    query = if(event.type = 'ai-query', hashed_stage.hash, null),
    feedback_text = if(event.type = 'x-feedback', hashed_stage.hash, null)
from hashed_stage
where event.ingest_seq = hashed_stage.ingest_seq;

-- `question_key` is computed from the text.
update question_stage
set question_key = question_key_of(event.session, event.chat_id, event.query)
from event
where question_stage.ingest_seq = event.ingest_seq
  and event.ingest_seq in (select ingest_seq from hashed_stage);

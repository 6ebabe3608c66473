-- AI questions, and feedback on them, of events with an ingest_seq below `expire_below` whose texts are neither hashed nor empty, at
-- most `expire_at_once`.
-- `question_hash` is empty, and gets the hashes of their texts.
create or replace temp table question_text as
select distinct key_id, session, chat_id, query
from (
    select key_id, session, chat_id, coalesce(query, feedback_text) as query
    from event
    where ingest_seq < getvariable('expire_below')::bigint
      and type in ('ai-query', 'x-feedback')
      and coalesce(query, feedback_text) <> ''
      and not regexp_full_match(coalesce(query, feedback_text), 'h_[0-9a-f]{32}')
    limit getvariable('expire_at_once')::bigint
);

create or replace temp table question_hash (query varchar, hash varchar);

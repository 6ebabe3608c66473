-- A number for a session, a chat and a text, each of which may be null: the stages of one question share it. The lengths keep
-- different parts from having the same concatenation.
create or replace macro question_key_of(session, chat_id, query) as
digest_of(
    concat(length(session), ':', session, length(chat_id), ':', chat_id, length(query), ':', query)
);

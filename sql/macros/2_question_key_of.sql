-- A number for a session, a chat and a text, which may each be null: the stages of one question have the same. Lengths keep
-- texts from passing for others.
create or replace macro question_key_of(session, chat_id, query) as
digest_of(
    concat(length(session), ':', session, length(chat_id), ':', chat_id, length(query), ':', query)
);

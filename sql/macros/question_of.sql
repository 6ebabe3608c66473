-- A number for a session, a chat and a text, which may each be null: the stages of one question have the same. Made of an
-- MD5, which is the same in every version of the engine, since it is kept with the event. Lengths keep texts from passing
-- for others. That two questions share a number takes billions of them, and does harm only where both are open at once.
create or replace macro question_of(session, chat_id, query) as
md5_number_lower(
    concat(length(session), ':', session, length(chat_id), ':', chat_id, length(query), ':', query)
);

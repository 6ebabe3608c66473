-- Deletes what is stored about sessions that have no stored events and actions any more: the rows of expired_session, and the numbers
-- of their erased messages.
create or replace temp table stored_session as
select key_id, session from event where session is not null
union
select key_id, session from action where session is not null;

delete from expired_session where (key_id, session) not in (from stored_session);

delete from erased_seq where (key_id, session) not in (from stored_session);

drop table stored_session;

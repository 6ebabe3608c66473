-- Deletes the rows of expired_session whose sessions have no stored events and actions any more.
delete from expired_session
where (key_id, session) not in (
    select (key_id, session) from event where session is not null
    union all
    select (key_id, session) from action where session is not null
);

-- The rows of `expired_session` without the sessions of erased people.
from expired_session
where (key_id, session) not in (from erased_session);

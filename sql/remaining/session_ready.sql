-- The rows of `session_ready` without the sessions of erased people.
from session_ready
where (key_id, session) not in (from erased_session);

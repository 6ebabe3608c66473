-- One row per key and session: what the session's `ready` said of the whole session, where that is needed at any time
-- (see the macro session_context_between).
create or replace view session_context as
from session_context_between(null::timestamp, null::timestamp);

comment on view session_context is 'What the ready event of each session says of the whole session.';

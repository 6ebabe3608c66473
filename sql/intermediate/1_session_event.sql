-- One row per event in scope with a session. For a page, only the sessions with an event on it: the first event of a session
-- decides on which page the session is. page_since and page_until are the bounds of session_page_period, or null.
create or replace view session_event as
select *
from event_in_scope
where session is not null
  and (getvariable('page_since') is null or occurred_at >= getvariable('page_since')::timestamp)
  and (getvariable('page_until') is null or occurred_at <= getvariable('page_until')::timestamp)
  and (
      not is_paginated()
      or session in (
          select session
          from event_in_scope
          where is_paginated() -- otherwise all events would be read
            and is_on_page(ingest_seq)
      )
  );

comment on view session_event is 'Events in scope with a session; for a page, those of the sessions with an event on it.';

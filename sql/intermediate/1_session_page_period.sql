-- One row: the times of the first and of the last event in scope of the sessions with an event on the page. The rollups have a
-- tenth of the rows of the events, and no texts. So finding this period takes less time than searching all events for a session.
create or replace view session_page_period as
select min(first_at) as first_at, max(last_at) as last_at
from session_15min_in_scope
where session in (
    select digest_of(session)
    from event_in_scope
    where is_on_page(ingest_seq)
);

comment on view session_page_period is 'The times of the first and of the last event of the sessions with an event on the page.';

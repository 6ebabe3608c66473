-- Deletes the events, actions and losses in `expired`, with their AI query stages. Adds the last number of each of
-- their sessions to expired_session, and selects the rows that ledger/count_removed.sql counts. The rollups are not changed.
create or replace temp table removed_row as
select ingest_seq, 'deleted_count' as counted_in from expired where kind <> 'loss';

create or replace temp table last_expired as
select key_id, session, max(last_seq) as last_seq
from (
    select key_id, session, seq as last_seq
    from expired
    where session is not null and seq between 0 and 999999
    union all by name
    from expired_session
    where (key_id, session) in (select key_id, session from expired)
)
group by key_id, session;

delete from expired_session where (key_id, session) in (select key_id, session from last_expired);

insert into expired_session by name from last_expired;

delete from event where ingest_seq in (select ingest_seq from expired where kind = 'event');

delete from action where ingest_seq in (select ingest_seq from expired where kind = 'action');

delete from loss where ingest_seq in (select ingest_seq from expired where kind = 'loss');

delete from question_stage where ingest_seq in (select ingest_seq from expired where kind = 'event');

-- Deletes the events, actions and losses in `expired`, with their AI query stages, and counts events and actions in their
-- ledgers. The rollups of `session_15min` are not changed.
update loaded_segment
set deleted_count = coalesce(deleted_count, 0) + expired_of_ledger.row_count
from (
    select ledger.segment, count(*) as row_count
    from expired
    join loaded_segment as ledger
        on expired.ingest_seq >> 32 between
            coalesce(ledger.first_number, split_part(ledger.segment, '-', 1)::bigint)
            and split_part(ledger.segment, '-', 1)::bigint
    where expired.kind <> 'loss'
    group by ledger.segment
) as expired_of_ledger
where loaded_segment.segment = expired_of_ledger.segment;

merge into expired_session
using (
    select key_id, session, max(seq) as last_seq
    from expired
    where session is not null and seq between 0 and 999999
    group by key_id, session
) as deleted
on expired_session.key_id = deleted.key_id and expired_session.session = deleted.session
when matched and deleted.last_seq > expired_session.last_seq then update set last_seq = deleted.last_seq
when not matched then insert by name;

delete from event where ingest_seq in (select ingest_seq from expired where kind = 'event');

delete from action where ingest_seq in (select ingest_seq from expired where kind = 'action');

delete from loss where ingest_seq in (select ingest_seq from expired where kind = 'loss');

delete from question_stage where ingest_seq in (select ingest_seq from expired where kind = 'event');

drop table expired;

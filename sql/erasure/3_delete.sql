-- Deletes the selected rows and what was derived from them, and keeps the numbers of erased envelopes in sessions of which others
-- remain. Without a number, the row only says that the session was shared.
insert into erased_seq by name
select distinct key_id, session, if(seq between 0 and 999999, seq, null) as seq
from erased_envelope
where session is not null
except
from erased_seq;

delete from erased_seq where (key_id, session) in (from erased_session);

delete from event where ingest_seq in (select ingest_seq from erased_envelope);

delete from action where ingest_seq in (select ingest_seq from erased_envelope);

delete from question_stage where ingest_seq in (select ingest_seq from erased_envelope);

delete from session_15min
using erased_rollup
where session_15min.key_id is not distinct from erased_rollup.key_id
  and session_15min.session is not distinct from erased_rollup.session
  and session_15min.viewer is not distinct from erased_rollup.viewer
  and session_15min.deployment is not distinct from erased_rollup.deployment
  and session_15min.tenant is not distinct from erased_rollup.tenant;

delete from loss where (key_id, session) in (from erased_session);

delete from session_ready where (key_id, session) in (from erased_session);

delete from expired_session where (key_id, session) in (from erased_session);

delete from quarantine where quarantine_id in (select quarantine_id from erased_rejection);

delete from quarantine_rest where quarantine_id in (select quarantine_id from erased_rejection);

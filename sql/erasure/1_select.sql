-- The rows of the person in the variables `viewers`, `deployments` and `tenants`.
create or replace temp table erased_session as
from person_session;

create or replace temp table erased_envelope as
from person_envelope;

create or replace temp table erased_rejection as
select quarantine_id, quarantine.ingest_seq
from person_rejection
join quarantine using (quarantine_id);

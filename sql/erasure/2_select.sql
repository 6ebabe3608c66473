-- Adds the rows of a person: the variables `person`, `viewers`, `deployments` and `tenants`. Two requests may be about the same
-- person.
insert into erased_loss
select getvariable('person')::integer, count(*)
from person_loss
where (key_id, session) not in (from erased_session);

insert into erased_session
from person_session
where (key_id, session) not in (from erased_session);

insert into erased_envelope by name
select getvariable('person')::integer as person, *
from person_envelope
where ingest_seq not in (select ingest_seq from erased_envelope);

insert into erased_rejection by name
select getvariable('person')::integer as person, quarantine_id, quarantine.ingest_seq
from person_rejection
join quarantine using (quarantine_id)
where quarantine_id not in (select quarantine_id from erased_rejection);

-- One row per loss that a forwarder reported for a session in which the requested person is the only viewer.
create or replace view person_loss as
select loss.received_at, loss.key_id, loss.deployment, loss.session, loss.reason, loss.lost_count
from loss
join person_session using (key_id, session)
order by loss.ingest_seq;

comment on view person_loss is 'Losses in the sessions of the person in the variable `viewers`.';

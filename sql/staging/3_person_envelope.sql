-- One row per accepted event and action of the requested person: those that name the viewer, and those without a viewer in sessions
-- in which the person is the only viewer.
create or replace view person_envelope as
select envelope.direction, envelope.ingest_seq, envelope.key_id, envelope.session, envelope.seq
from (
    select 'event' as direction, ingest_seq, key_id, session, seq, viewer, deployment, tenant from event
    union all
    select 'action', ingest_seq, key_id, session, seq, viewer, deployment, tenant from action
) as envelope
left join session_context_between(null, null) as context using (key_id, session)
where is_of_person(
    -- Without a viewer, the session decides.
    if(
        viewer is null and (envelope.key_id, envelope.session) in (select (key_id, session) from person_session),
        (getvariable('viewers')::varchar[])[1],
        viewer
    ),
    coalesce(envelope.deployment, context.deployment),
    coalesce(envelope.tenant, context.tenant)
);

comment on view person_envelope is 'Accepted events and actions of the person in the variable `viewers`.';

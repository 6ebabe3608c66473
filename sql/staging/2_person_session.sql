-- One row per session in which the requested person is the only viewer. With the variable `excludes_formerly_shared`, sessions of which
-- another viewer was erased are left out.
create or replace view person_session as
with envelope as (
    select key_id, session, viewer, deployment, tenant from event where session is not null and viewer is not null
    union all
    select key_id, session, viewer, deployment, tenant from action where session is not null and viewer is not null
)
select envelope.key_id, envelope.session
from envelope
left join session_context_between(null, null) as context using (key_id, session)
-- Most sessions have none of the person's envelopes, and need no group.
where (envelope.key_id, envelope.session) in (
    select (key_id, session) from envelope where list_contains(getvariable('viewers')::varchar[], viewer)
)
  and (
      not coalesce(getvariable('excludes_formerly_shared')::boolean, false)
      or (envelope.key_id, envelope.session) not in (select (key_id, session) from erased_seq)
  )
group by envelope.key_id, envelope.session
having bool_and(is_of_person(
    viewer, coalesce(envelope.deployment, context.deployment), coalesce(envelope.tenant, context.tenant)
));

comment on view person_session is 'Sessions in which the person in the variable `viewers` is the only viewer.';

-- One row per deployment, surface, name, context and message shape of errors (macro shape_of), over the whole period.
create or replace view errors as
select
    deployment,
    surface,
    error_name as name,
    error_context as context,
    shape_of(message) as message_shape,
    count(*) as error_count,
    count(*) filter (fatal) as fatal_count,
    count(distinct session) as session_count,
    min(occurred_at) as first_seen_at,
    max(occurred_at) as last_seen_at,
    arg_max(message, {occurred_at: occurred_at, ingest_seq: ingest_seq}) as example_message
from event_in_scope
where type = 'error'
group by deployment, surface, error_name, error_context, message_shape
order by error_count desc, deployment, surface, name, context, message_shape;

comment on view errors is
'Errors
Which errors do people see, how often, and since when?
One row per deployment, surface, name, context and message shape.';
comment on column errors.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column errors.surface is 'Surface of the error.';
comment on column errors.name is 'Name or class of the error; null when the event has none.';
comment on column errors.context is 'Origin of the error; null when the event has none.';
comment on column errors.message_shape is
'Message in lowercase, with # for each number and id, "…" for each quoted part, and single spaces.';
comment on column errors.error_count is 'Errors of this kind, including fatal ones.';
comment on column errors.fatal_count is 'Errors of this kind that stopped the whole surface.';
comment on column errors.session_count is 'Distinct sessions with an error of this kind.';
comment on column errors.first_seen_at is 'Time of the first error of this kind in the period, in UTC.';
comment on column errors.last_seen_at is 'Time of the last error of this kind in the period, in UTC.';
comment on column errors.example_message is 'Message of the last error of this kind, as it was sent.';

-- One row per deployment, surface, name, context and message shape of errors, over the whole period asked for. Messages
-- that differ only in case, spacing, numbers, ids and quoted parts are one (shape_of).
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
comment on column errors.surface is 'Surface on which it happened.';
comment on column errors.name is 'Name or class of the error; null when it was not told.';
comment on column errors.context is 'Where it came from; null when it was not told.';
comment on column errors.message_shape is 'The message, with case, spacing, numbers, ids and quoted parts folded.';
comment on column errors.error_count is 'Errors of this kind, fatal ones included.';
comment on column errors.fatal_count is 'Errors of this kind that took down the whole surface.';
comment on column errors.session_count is 'Distinct sessions with an error of this kind.';
comment on column errors.first_seen_at is 'First one in the period asked for, in UTC.';
comment on column errors.last_seen_at is 'Last one in the period asked for, in UTC.';
comment on column errors.example_message is 'Message of the last one, as it was sent.';

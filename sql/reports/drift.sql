-- One row per event type and field that the catalog does not contain: the protocol has grown, or a sender adds its own fields.
-- Nested fields count as their outermost field. Two scans, so that the statistics of each column exclude the row groups without
-- unknown fields.
create or replace view drift as
with unknown_members as (
    select type, 'payload.' as prefix, extra as members, occurred_at, ingest_seq from event_in_scope where extra is not null
    union all
    select type, '', envelope_extra, occurred_at, ingest_seq from event_in_scope where envelope_extra is not null
),
unknown_member as (
    select type, prefix, occurred_at, ingest_seq, unnest(map_entries(members::map(varchar, json)), recursive := true)
    from unknown_members
)
select
    type,
    prefix || left(key, 64) as field,
    min(occurred_at) as first_seen_at,
    count(*) as event_count,
    left(arg_min(coalesce(value::varchar, 'null'), (occurred_at, ingest_seq)), 64) as example,
    max(occurred_at) as last_seen_at
from unknown_member
group by type, field
order by event_count desc, type, field;

comment on view drift is
'Drift
Which event fields does the protocol not define?
One row per event type and field.';
comment on column drift.type is 'Type of the event, without its prefix.';
comment on column drift.field is
'Unknown field, at most 64 characters of its name: payload.x is in the payload, x is in the envelope.';
comment on column drift.first_seen_at is 'Time of the first event in scope with the field, in UTC.';
comment on column drift.event_count is 'Events with the field.';
comment on column drift.example is 'Value in the first of these events, as JSON; the first 64 characters.';
comment on column drift.last_seen_at is 'Time of the last event in scope with the field, in UTC.';

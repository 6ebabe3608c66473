-- What several waiting segments deliver: one row per event or action.
create or replace temp view delivered as
select kind, coalesce(envelope.id, id)::uuid as id, received_at
from read_json(
    getvariable('segment_paths'),
    format = 'newline_delimited',
    maximum_object_size = getvariable('line_bytes_max')::bigint,
    columns = {kind: 'varchar', received_at: 'bigint', id: 'varchar', envelope: 'struct(id varchar)'}
)
where kind in ('event', 'action');

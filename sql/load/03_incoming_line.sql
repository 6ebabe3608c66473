-- One row per line of the segments, with only the columns that deduplication and the ledger need.
create or replace temp table incoming_line as
select kind, coalesce(envelope.id, id)::uuid as id, received_at, key_id = 'import' as is_imported, rejected_count, ingest_seq
from (
    select *, getvariable('ingest_seq_base')[filename] + row_number() over () as ingest_seq
    from read_json(
        getvariable('segment_paths'),
        filename = true,
        format = 'newline_delimited',
        maximum_object_size = getvariable('line_bytes_max')::bigint,
        columns = {kind: 'varchar', received_at: 'bigint', key_id: 'varchar', id: 'varchar', envelope: 'struct(id varchar)', rejected_count: 'bigint'}
    )
)
where kind is not null;

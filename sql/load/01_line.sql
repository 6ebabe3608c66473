-- Journal segments, line by line. Only this file, 03_incoming_line and 10_conflict_rejection depend on the format of journal
-- lines (embedsink.ingest.records). One row per line, in the order of the journal. The trailers of groups have no kind.

-- By file: the difference between the ingest_seq of a line and its number among the lines of all segments.
set variable ingest_seq_base = (
    select map(list(path), list(number * 4294967296 - lines_before))
    from (select unnest(getvariable('segments'), recursive := true))
);

-- A view: each query parses the segments again, but only the fields that it reads. That is faster than a temporary table
-- with all fields, and takes no memory.
create or replace temp view line as
select * exclude (filename), getvariable('ingest_seq_base')[filename] + row_number() over () as ingest_seq
from read_json(
    getvariable('segment_paths'),
    filename = true,
    format = 'newline_delimited',
    maximum_object_size = getvariable('line_bytes_max')::bigint,
    columns = {
        kind: 'varchar',
        received_at: 'bigint',
        sent_at: 'double',
        key_id: 'varchar',
        is_internal: 'boolean',
        context: 'struct(deployment bigint, session varchar, viewer varchar, tenant varchar, page varchar, vendor varchar)',
        id: 'varchar',
        envelope: 'struct(
            id varchar, seq bigint, type varchar, timestamp double, surface varchar,
            payload struct(
                embedTenant varchar, deploymentId bigint, mode varchar, surface varchar, publicId varchar,
                path varchar, title varchar, previousPath varchar, widgetCount double, loadDurationMs double,
                format varchar, target varchar, widgetId varchar, rowCount double, member varchar, value json, filters json,
                query varchar, status varchar, chatId varchar, agentId varchar, rating varchar, text varchar,
                message varchar, name varchar, context varchar, fatal boolean,
                scheme varchar, locale varchar, filterUrlParameter varchar))',
        extra: 'json',
        envelope_extra: 'json',
        quarantine_id: 'varchar',
        "index": 'bigint',
        reason: 'varchar',
        detail: 'varchar',
        raw: 'varchar',
        raw_encoding: 'varchar',
        lost_count: 'bigint',
        rejected_count: 'bigint',
        whole_bytes: 'bigint',
        whole_sha256: 'varchar',
        deployment: 'bigint',
        completed_at: 'bigint',
        digest: 'varchar',
        result: 'struct(
            syncJobId varchar, generatedFiles struct(path varchar)[],
            manifestStats struct(models bigint, sources bigint, macros bigint),
            svcCount bigint, completedAt varchar, durationMs bigint)',
        resource_type: 'varchar',
        resource_id: 'varchar',
        deactivated_at: 'bigint',
        resource: 'json',
        members_added: 'varchar[]',
        members_removed: 'varchar[]'
    }
);

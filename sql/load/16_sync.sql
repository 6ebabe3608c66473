-- The first result of each dbt sync job. A second, different result of a job is refused on receipt (409).
insert into sync by name
select
    ingest_seq,
    make_timestamp(received_at * 1000) as received_at,
    key_id,
    deployment,
    result.syncJobId as sync_job_id,
    make_timestamp(completed_at) as completed_at,
    result.completedAt as completed_at_text,
    result.durationMs as duration_ms,
    result.svcCount as cube_count,
    result.manifestStats.models as model_count,
    result.manifestStats.sources as source_count,
    result.manifestStats.macros as macro_count,
    digest,
    extra
from line
where kind = 'sync'
  and (deployment, result.syncJobId) not in (select (deployment, sync_job_id) from sync)
qualify row_number() over (partition by deployment, result.syncJobId order by ingest_seq) = 1;

insert into sync_file by name
select
    ingest_seq as sync_ingest_seq,
    generate_subscripts(result.generatedFiles, 1) - 1 as position,
    unnest(result.generatedFiles).path as path
from line
where kind = 'sync' and ingest_seq in (select ingest_seq from sync);

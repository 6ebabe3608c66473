-- One row per dbt sync in scope, with the paths of its generated files in their order: the whole result (spec 2.1).
create or replace view sync_result as
with file as (
    select sync_ingest_seq, list(path order by position) as paths
    from sync_file
    where sync_ingest_seq in (select ingest_seq from sync_in_scope)
    group by sync_ingest_seq
)
select sync_in_scope.*, coalesce(paths, []) as paths
from sync_in_scope
left join file on sync_ingest_seq = ingest_seq;

comment on view sync_result is 'Dbt syncs in scope as they were recorded, with their generated files.';

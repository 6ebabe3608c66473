-- One row per dbt sync in scope, with the paths of its generated files in their order: all that its result has (spec 2.1).
create or replace view sync_result as
with file as (
    select sync_arrival, list(path order by place) as paths
    from sync_file
    where sync_arrival in (select arrival from sync_in_scope)
    group by sync_arrival
)
select sync_in_scope.*, coalesce(paths, []) as paths
from sync_in_scope
left join file on sync_arrival = arrival;

comment on view sync_result is 'Every dbt sync in scope as it was recorded, with its generated files.';

-- One row per dbt sync in scope, in the order in which they were completed: with nothing around it, too, since that was
-- measured. Rates and percentiles are null where there was nothing to rate.
create or replace view sync_impact as
select
    deployment,
    sync_job_id,
    completed_at,
    error_count_before / nullif(view_count_before, 0) as errors_per_view_before,
    error_count_after / nullif(view_count_after, 0) as errors_per_view_after,
    load_p95_before_ms,
    load_p95_after_ms,
    coalesce(view_count_before, 0) as view_count_before,
    coalesce(view_count_after, 0) as view_count_after,
    coalesce(error_count_before, 0) as error_count_before,
    coalesce(error_count_after, 0) as error_count_after,
    duration_ms,
    cube_count,
    model_count,
    source_count,
    macro_count
from sync_in_scope
left join sync_window_metrics using (ingest_seq)
order by completed_at, deployment, sync_job_id;

comment on view sync_impact is
'Impact of dbt syncs
Did a dbt sync make dashboards fail more, or load more slowly?
One row per dbt sync.';
comment on column sync_impact.deployment is 'Deployment that was synced.';
comment on column sync_impact.sync_job_id is 'Identifier of the sync job.';
comment on column sync_impact.completed_at is 'When the sync finished, in UTC.';
comment on column sync_impact.errors_per_view_before is
'Errors for each view event in the 24 hours before it was completed; null without views. Unit: errors per view.';
comment on column sync_impact.errors_per_view_after is
'Errors for each view event in the 24 hours from then on; null without views. Unit: errors per view.';
comment on column sync_impact.load_p95_before_ms is
'95th percentile of the loading times of dashboards in the 24 hours before; null when none was told. Unit: ms.';
comment on column sync_impact.load_p95_after_ms is
'95th percentile of the loading times of dashboards in the 24 hours from then on; null when none was told. Unit: ms.';
comment on column sync_impact.view_count_before is 'View events of the deployment in the 24 hours before.';
comment on column sync_impact.view_count_after is 'View events of the deployment in the 24 hours from then on.';
comment on column sync_impact.error_count_before is 'Errors of the deployment in the 24 hours before, fatal ones included.';
comment on column sync_impact.error_count_after is
'Errors of the deployment in the 24 hours from then on, fatal ones included.';
comment on column sync_impact.duration_ms is 'How long the sync took from end to end. Unit: ms.';
comment on column sync_impact.cube_count is 'Cubes that the sync generated.';
comment on column sync_impact.model_count is 'Models in the dbt manifest.';
comment on column sync_impact.source_count is 'Sources in the dbt manifest.';
comment on column sync_impact.macro_count is 'Macros in the dbt manifest.';

-- One row per dbt sync in scope, in the order of completion, including syncs without events around them.
-- Rates and percentiles of a window without events are null.
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
Did dashboards fail more often, or load more slowly, after a dbt sync?
One row per dbt sync.';
comment on column sync_impact.deployment is 'Deployment that was synced.';
comment on column sync_impact.sync_job_id is 'Id of the sync job.';
comment on column sync_impact.completed_at is 'Time of completion, in UTC.';
comment on column sync_impact.errors_per_view_before is
'Errors ÷ view events in the 24 hours before completion; null without views. Unit: errors per view.';
comment on column sync_impact.errors_per_view_after is
'Errors ÷ view events in the 24 hours after completion; null without views. Unit: errors per view.';
comment on column sync_impact.load_p95_before_ms is
'95th percentile of the load times of dashboards in the 24 hours before completion; null without load times. Unit: ms.';
comment on column sync_impact.load_p95_after_ms is
'95th percentile of the load times of dashboards in the 24 hours after completion; null without load times. Unit: ms.';
comment on column sync_impact.view_count_before is 'View events of the deployment in the 24 hours before completion.';
comment on column sync_impact.view_count_after is 'View events of the deployment in the 24 hours after completion.';
comment on column sync_impact.error_count_before is
'Errors of the deployment in the 24 hours before completion, including fatal ones.';
comment on column sync_impact.error_count_after is
'Errors of the deployment in the 24 hours after completion, including fatal ones.';
comment on column sync_impact.duration_ms is 'Duration of the sync. Unit: ms.';
comment on column sync_impact.cube_count is 'Cubes that the sync generated.';
comment on column sync_impact.model_count is 'Models in the dbt manifest.';
comment on column sync_impact.source_count is 'Sources in the dbt manifest.';
comment on column sync_impact.macro_count is 'Macros in the dbt manifest.';

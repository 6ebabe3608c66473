-- One row per deployment, surface, path and filter with a filter change, over the whole period. A change without names of filters
-- has one row with a null name.
create or replace view filters as
with change as (
    select
        deployment,
        surface,
        path,
        unnest(if(json_keys(filters) <> [], json_keys(filters), [null])) as filter_name,
        session,
        viewer
    from event_in_scope
    where type = 'x-filter'
)
select
    deployment,
    surface,
    path,
    filter_name,
    count(*) as change_count,
    count(distinct session) as session_count,
    count(distinct viewer) as viewer_count
from change
group by all
order by change_count desc, deployment, surface, path, filter_name;

comment on view filters is
'Filters
Which filters do people set, and on which dashboards?
One row per deployment, surface, path and filter.';
comment on column filters.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column filters.surface is 'Surface on which the filters were changed.';
comment on column filters.path is 'Path inside the embed; null when the vendor does not tell it.';
comment on column filters.filter_name is
'Name of a filter that was set after the change; null when none was set, or the vendor tells only that filters changed.';
comment on column filters.change_count is 'Changes after which the filter was set.';
comment on column filters.session_count is 'Distinct sessions with such a change.';
comment on column filters.viewer_count is 'Distinct viewers with such a change.';

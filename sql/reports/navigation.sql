-- One row per deployment, surface and pair of paths, over the whole period. A navigation sends a `navigate` and a `view`
-- event. Only `navigate` events count here; in `views`, only `view` events count.
create or replace view navigation as
select
    deployment,
    surface,
    previous_path,
    path,
    count(*) as navigate_count
from event_in_scope
where type = 'navigate'
group by deployment, surface, previous_path, path
order by navigate_count desc, deployment, surface, previous_path, path;

comment on view navigation is
'Navigation
Which paths do people follow inside the embed?
One row per deployment, surface, previous path and path.';
comment on column navigation.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column navigation.surface is 'Surface of the navigation.';
comment on column navigation.previous_path is 'Path before the navigation; null when the event has none.';
comment on column navigation.path is 'Path after the navigation.';
comment on column navigation.navigate_count is 'Navigations, each counted once.';

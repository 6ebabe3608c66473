-- One row per deployment, surface and pair of paths, over the whole period asked for.
-- A navigation sends `navigate` and `view`; only `navigate` events count here, and only `view` events in `views`.
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
Which ways do people take inside the embed?
One row per deployment, surface, previous path and path.';
comment on column navigation.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column navigation.surface is 'Surface in which people went from one path to the other.';
comment on column navigation.previous_path is 'Path that they came from; null when it was not told.';
comment on column navigation.path is 'Path that they went to.';
comment on column navigation.navigate_count is 'Navigations, each counted once.';

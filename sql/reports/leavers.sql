-- One row per viewer whom the directory has deactivated and who has an event in scope at or after that time. If the directory has
-- several users for one viewer, an active one counts (sql/staging/3_directory_viewer.sql).
-- Traits: directory.
create or replace view leavers as
select
    directory_viewer.viewer,
    any_value(display_name) as display_name,
    any_value(department) as department,
    any_value(deactivated_at) as deactivated_at,
    min(occurred_at) as first_seen_at,
    max(occurred_at) as last_seen_at,
    count(*) filter (type = 'view') as view_count,
    count(*) filter (type = 'download') as download_count,
    count(*) as event_count
from event_in_scope
join directory_viewer on event_in_scope.viewer = directory_viewer.viewer
where not is_active and occurred_at >= deactivated_at
group by directory_viewer.viewer
order by last_seen_at desc, directory_viewer.viewer;

comment on view leavers is
'Leavers
Which people still use the embed although the directory has deactivated them?
One row per deactivated viewer with a later event.';
comment on column leavers.viewer is 'Viewer.';
comment on column leavers.display_name is
'Name of the person in the directory; null without one, or if the key does not show names.';
comment on column leavers.department is 'Department of the person in the directory; null without one.';
comment on column leavers.deactivated_at is 'Time at which the person was last deactivated in the directory, in UTC.';
comment on column leavers.first_seen_at is 'Time of the first event in the period after the deactivation, in UTC.';
comment on column leavers.last_seen_at is 'Time of the last event in the period after the deactivation, in UTC.';
comment on column leavers.view_count is 'View events after the deactivation.';
comment on column leavers.download_count is 'Downloads after the deactivation.';
comment on column leavers.event_count is 'Events of any type after the deactivation.';

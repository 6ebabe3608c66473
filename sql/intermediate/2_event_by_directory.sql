-- One row per event in scope and group of its viewer, or one row without a group. The filters by department and group apply.
create or replace view event_by_directory as
select event_in_scope.*, department, "group"
from event_in_scope
left join viewer_dimension on event_in_scope.viewer = viewer_dimension.viewer
where is_requested_viewer(viewer_dimension.viewer);

comment on view event_by_directory is 'Events in scope, with the department and the groups of the viewer.';

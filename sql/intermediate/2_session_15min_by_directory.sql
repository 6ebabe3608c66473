-- One row per row of session_15min_in_scope and group of its viewer, or one row without a group. The filters by department and
-- group apply.
create or replace view session_15min_by_directory as
select counted.*, department, "group"
from session_15min_in_scope as counted
left join viewer_dimension on counted.viewer = viewer_digest
where is_requested_viewer(viewer_digest);

comment on view session_15min_by_directory is
'Events in scope, counted by quarter of an hour, session, viewer and surface, with the viewer''s department and groups.';

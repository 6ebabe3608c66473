-- One row per AI query in scope (ai_pair) and group of its viewer, or one row without a group. The filters by department and
-- group apply after the pairing, so that the stages of other people don't change the pairs.
create or replace view ai_pair_by_directory as
select ai_pair.*, department, "group"
from ai_pair
left join viewer_dimension on ai_pair.viewer = viewer_dimension.viewer
where is_requested_viewer(viewer_dimension.viewer);

comment on view ai_pair_by_directory is 'AI queries in scope with their stages paired, with the department and the groups of the viewer.';

-- Whether a row passes the filters by department and by group. directory_viewer is the viewer of its match in viewer_dimension,
-- which has only viewers that pass the filters; null without a match.
create or replace macro is_requested_viewer(directory_viewer) as
((getvariable('department') is null and getvariable('viewer_group') is null) or directory_viewer is not null);

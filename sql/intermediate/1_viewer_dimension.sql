-- One row per viewer in the directory, or per viewer and group if the reader asks for groups. The variables department and
-- viewer_group limit the viewers. A dimension is null unless the reader asks for it. viewer_digest joins the rollups.
create or replace view viewer_dimension as
select
    directory_viewer.viewer,
    digest_of(directory_viewer.viewer) as viewer_digest,
    if(is_dimension('department'), directory_viewer.department, null) as department,
    requested_group.name as "group"
from directory_viewer
left join (from viewer_group where is_dimension('group')) as requested_group
    on directory_viewer.viewer = requested_group.viewer
where (getvariable('department') is null or directory_viewer.department = getvariable('department')::varchar)
  and (
      getvariable('viewer_group') is null
      or directory_viewer.viewer in (select viewer from viewer_group where name = getvariable('viewer_group')::varchar)
  );

comment on view viewer_dimension is
'Viewers in the directory with the requested dimensions; the variables department and viewer_group limit the viewers.';

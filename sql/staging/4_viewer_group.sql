-- One row per viewer in the directory and name of a group of which the viewer is a direct member.
create or replace view viewer_group as
select distinct
    viewer,
    name
from directory_viewer
join directory_member using (user_id)
join directory_group using (group_id)
where name is not null;

comment on view viewer_group is 'Viewers in the directory with the names of their groups. No rows if `tenants` is set.';

-- One row per user of the directory who is the requested person, with the names of the groups. The directory belongs to no
-- deployment and no tenant, so a request that is limited to some has no rows.
create or replace view person_directory as
select
    directory_user.user_id,
    directory_user.resource,
    (
        select list(directory_group.name order by directory_group.name)
        from directory_member
        join directory_group using (group_id)
        where directory_member.user_id = directory_user.user_id
    ) as group_names
from directory_user
where directory_user.resource is not null and is_of_person(directory_user.viewer, null, null)
order by user_id;

comment on view person_directory is 'Users of the directory who are the person in the variable `viewers`.';

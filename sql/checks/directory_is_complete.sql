-- One row per user or group of the directory that is stored more than once, or has neither a resource nor the traits of a
-- deleted one, and per member of a group that does not exist.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report, then
-- run `embedsink rebuild`.
select 'User' as resource_type, user_id as resource_id, count(*) as row_count
from directory_user
group by user_id
having count(*) > 1
    or user_id is null
    or bool_or((resource is null) <> (user_name is null))
    or bool_or(resource is null and coalesce(viewer, display_name, department, deactivated_at::varchar) is not null)
union all
select 'Group', group_id, count(*)
from directory_group
group by group_id
having count(*) > 1
    or group_id is null
    or bool_or(resource is null and name is not null)
union all
select 'Member', group_id, count(*)
from directory_member
where group_id not in (select group_id from directory_group where resource is not null)
group by group_id
order by resource_type, resource_id;

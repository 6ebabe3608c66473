-- One row per user and group of the directory: the whole resource, and the ids of a group's members. Deleted resources have no
-- resource. The directory belongs to no deployment and no tenant, so a reader whose key is limited sees no row.
create or replace view directory_resource as
select 'User' as resource_type, user_id as resource_id, ingest_seq, deactivated_at, resource, null::varchar[] as members
from directory_user
where is_in_deployments(null) and is_in_tenants(null)
union all
select
    'Group',
    group_id,
    any_value(directory_group.ingest_seq),
    null,
    any_value(resource),
    list(user_id) filter (user_id is not null)
from directory_group
left join directory_member using (group_id)
where is_in_deployments(null) and is_in_tenants(null)
group by group_id;

comment on view directory_resource is
'Users and groups of the directory as SCIM resources, with the members of groups; only for readers without limits.';

-- The newest versions of the directory's users and groups, and the members of the groups. A version older than the stored one
-- changes nothing.
create or replace temp table incoming_directory as
select
    ingest_seq,
    make_timestamp(received_at * 1000) as received_at,
    resource_type,
    resource_id,
    make_timestamp(deactivated_at * 1000) as deactivated_at,
    resource,
    members_added,
    members_removed
from line
where kind = 'directory'
  and ingest_seq > coalesce((select max(ingest_seq) from directory_user where user_id = resource_id), -1)
  and ingest_seq > coalesce((select max(ingest_seq) from directory_group where group_id = resource_id), -1);

delete from directory_user where user_id in (select resource_id from incoming_directory where resource_type = 'User');

insert into directory_user by name
select
    ingest_seq,
    resource_id as user_id,
    received_at,
    viewer_of(resource, getvariable('viewer_attribute')::varchar) as viewer,
    resource ->> '$.userName' as user_name,
    coalesce(
        resource ->> '$.displayName',
        resource ->> '$.name.formatted',
        nullif(trim(concat_ws(' ', resource ->> '$.name.givenName', resource ->> '$.name.familyName')), '')
    ) as display_name,
    resource ->> '$."urn:ietf:params:scim:schemas:extension:enterprise:2.0:User".department' as department,
    -- A user without the attribute is active.
    if(resource is null, null, coalesce((resource ->> '$.active')::boolean, true)) as is_active,
    deactivated_at,
    resource
from incoming_directory
where resource_type = 'User'
qualify row_number() over (partition by resource_id order by ingest_seq desc) = 1;

delete from directory_group where group_id in (select resource_id from incoming_directory where resource_type = 'Group');

insert into directory_group by name
select ingest_seq, resource_id as group_id, received_at, resource ->> '$.displayName' as name, resource
from incoming_directory
where resource_type = 'Group'
qualify row_number() over (partition by resource_id order by ingest_seq desc) = 1;

-- The last change of each member decides.
create or replace temp table incoming_member as
with change as (
    select ingest_seq, resource_id as group_id, unnest(members_removed) as user_id, false as is_member
    from incoming_directory
    union all
    select ingest_seq, resource_id, unnest(members_added), true
    from incoming_directory
)
from change
qualify row_number() over (partition by group_id, user_id order by ingest_seq desc, is_member desc) = 1;

delete from directory_member where (group_id, user_id) in (select (group_id, user_id) from incoming_member);

insert into directory_member by name
select ingest_seq, group_id, user_id from incoming_member where is_member;

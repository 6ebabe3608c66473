-- One row: whether the directory has a user or a group that the reader may see. A deleted one has no resource.
create or replace view directory_presence as
select
    is_in_tenants(null)
        and (
            exists (from directory_user where resource is not null)
            or exists (from directory_group where resource is not null)
        ) as has_resources;

comment on view directory_presence is 'Whether the directory has a user or a group that the reader may see.';

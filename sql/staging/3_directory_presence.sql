-- One row: whether the directory has a user or a group that the reader may see, and whether it ever had one. A deleted one has
-- no resource.
create or replace view directory_presence as
select
    is_in_tenants(null)
        and (
            exists (from directory_user where resource is not null)
            or exists (from directory_group where resource is not null)
        ) as has_resources,
    is_in_tenants(null) and (exists (from directory_user) or exists (from directory_group)) as had_resources;

comment on view directory_presence is 'Whether the directory has, or ever had, a user or a group that the reader may see.';

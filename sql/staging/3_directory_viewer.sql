-- One row per viewer in the directory. If several users have the same viewer, an active user comes first, then the one with the
-- smallest user_id. The directory belongs to no tenant, so a key that is limited to tenants sees no row. Only this view reads
-- names: they are null if the variable shows_names is false.
create or replace view directory_viewer as
select distinct on (viewer)
    viewer,
    user_id,
    if(coalesce(getvariable('shows_names')::boolean, true), display_name, null) as display_name,
    department,
    is_active,
    deactivated_at
from directory_user
where viewer is not null and is_in_tenants(null)
order by viewer, is_active desc, user_id;

comment on view directory_viewer is
'Viewers in the directory: name, department, and whether the person is active. No rows if `tenants` is set.';

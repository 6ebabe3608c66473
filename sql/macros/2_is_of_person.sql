-- Whether a row is of the requested person: the variable `viewers` has all forms of the viewer's id, clear and hashed.
create or replace macro is_of_person(viewer, deployment, tenant) as
(
    coalesce(list_contains(getvariable('viewers')::varchar[], viewer), false)
    and is_in_deployments(deployment)
    and is_in_tenants(tenant)
);

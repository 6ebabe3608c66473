-- Whether this tenant is in scope: the requested one, or one of its hashes (docs/privacy.md).
create or replace macro is_of_tenant(name) as
(
    getvariable('tenant') is null
    or name = getvariable('tenant')::varchar
    or coalesce(list_contains(getvariable('tenant_hashes')::varchar[], name), false)
);

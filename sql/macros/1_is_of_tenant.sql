-- Whether this tenant is in scope.
create or replace macro is_of_tenant(name) as
(getvariable('tenant') is null or name = getvariable('tenant')::varchar);

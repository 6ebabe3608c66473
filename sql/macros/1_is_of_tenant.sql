-- Whether this tenant is the one asked for, if one is.
create or replace macro is_of_tenant(name) as
(getvariable('tenant') is null or name = getvariable('tenant')::varchar);

-- Whether the reader's key may see rows of this tenant. The limit of keys to tenants is enforced only here; is_of_tenant applies
-- the filter that a reader asks for. A row without a tenant (null) is visible only if the variable is unset.
create or replace macro is_in_tenants(name) as
(getvariable('tenants') is null or list_contains(getvariable('tenants')::varchar[], name));

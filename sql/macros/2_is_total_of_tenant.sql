-- Whether daily totals of this tenant are in scope: those of the requested tenant, or else those of all tenants together (null).
create or replace macro is_total_of_tenant(name) as
if(getvariable('tenant') is null, name is null, is_of_tenant(name));

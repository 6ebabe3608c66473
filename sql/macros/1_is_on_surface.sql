-- Whether this surface is the one asked for, if one is.
create or replace macro is_on_surface(name) as
(getvariable('surface') is null or name = getvariable('surface')::varchar);

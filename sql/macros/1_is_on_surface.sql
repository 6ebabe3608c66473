-- Whether this surface is in scope.
create or replace macro is_on_surface(name) as
(getvariable('surface') is null or name = getvariable('surface')::varchar);

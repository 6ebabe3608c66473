-- Whether an event is in scope, by the vendor of its embed. Without a requested vendor, all events are.
create or replace macro is_of_vendor(name) as
(getvariable('vendor') is null or name = getvariable('vendor')::varchar);

-- Whether the reader asks for a report by department or by group. The variable `dimensions` lists the requested ones of
-- `department` and `group`; null means neither.
create or replace macro is_dimension(name) as
coalesce(list_contains(getvariable('dimensions')::varchar[], name), false);

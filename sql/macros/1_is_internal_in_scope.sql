-- Whether an event is in scope, by whether it is of internal people. The variable `internal` is `exclude` (also if it is null),
-- `include` or `only`.
create or replace macro is_internal_in_scope(is_internal) as
case coalesce(getvariable('internal')::varchar, 'exclude')
    when 'include' then true
    when 'only' then coalesce(is_internal, false)
    else not coalesce(is_internal, false)
end;

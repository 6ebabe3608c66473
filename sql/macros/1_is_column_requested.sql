-- Whether any of these columns is read: the variable requested_columns lists the columns of the report that are read; null:
-- all. A view may skip work for other columns, if the requested ones stay the same.
create or replace macro is_column_requested(names) as
(getvariable('requested_columns') is null or list_has_any(getvariable('requested_columns')::varchar[], names));

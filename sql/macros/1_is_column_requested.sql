-- Whether any of these columns is requested. The variable requested_columns lists the requested columns of the report; null
-- means all. A view may skip the work for other columns if the values of the requested columns stay the same.
create or replace macro is_column_requested(names) as
(getvariable('requested_columns') is null or list_has_any(getvariable('requested_columns')::varchar[], names));

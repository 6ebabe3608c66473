-- Whether any of these columns is read: the variable requested_columns names those of the report that are, null all. What only
-- others are made of can be left out, where the ones that are read stay the same.
create or replace macro is_column_requested(names) as
(getvariable('requested_columns') is null or list_has_any(getvariable('requested_columns')::varchar[], names));

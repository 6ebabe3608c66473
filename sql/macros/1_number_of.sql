-- A number as JSON, as it was sent: a whole number has no `.0`, which a double would have.
create or replace macro number_of(value) as if(try_cast(value as bigint) = value, to_json(try_cast(value as bigint)), to_json(value));

-- A number in JSON as it was sent: a whole number without a fraction, which a double would have.
create or replace macro number_of(value) as if(try_cast(value as bigint) = value, to_json(try_cast(value as bigint)), to_json(value));

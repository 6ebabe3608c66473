-- A number of the protocol as a join key: `using` and `asof` don't match nulls. The protocol's integers are greater than
-- -2^53, so none equals the value for null.
create or replace macro null_safe_key(number) as coalesce(number, -9007199254740992);

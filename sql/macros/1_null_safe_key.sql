-- A number of the protocol as a key of joins: `using` and `asof` don't match nulls. Integers of the protocol are within 2^53
-- of 0, so none equals this one.
create or replace macro null_safe_key(number) as coalesce(number, -9007199254740992);

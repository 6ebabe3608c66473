-- A number of the protocol as joins can compare it: two that are missing meet, which no `asof` join and no `using` lets nulls
-- do. Integers of the protocol are within 2^53 of 0, so none is this one.
create or replace macro null_safe_key(number) as coalesce(number, -9007199254740992);

-- The timestamp of epoch milliseconds, exact to the microsecond. Not ms * 1000: in the year 9999 a double is not precise
-- enough.
create or replace macro instant_of(ms) as make_timestamp(trunc(ms)::bigint * 1000 + ((ms % 1) * 1000)::bigint);

-- The instant that epoch milliseconds mean, exact to the microsecond. Not ms * 1000: at the year 9999 that is beyond what a
-- double tells apart.
create or replace macro instant_of(ms) as make_timestamp(trunc(ms)::bigint * 1000 + ((ms % 1) * 1000)::bigint);

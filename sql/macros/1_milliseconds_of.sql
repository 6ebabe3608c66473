-- The epoch milliseconds of a timestamp with their fraction: the inverse of instant_of. Not epoch_us / 1000: at the limits of
-- time a double is not precise enough.
create or replace macro milliseconds_of(instant) as epoch_us(instant) // 1000 + (epoch_us(instant) % 1000) / 1000;

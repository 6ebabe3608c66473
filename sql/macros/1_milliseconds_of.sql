-- The epoch milliseconds of a timestamp with their fraction: the inverse of instant_of. Not epoch_us / 1000: near the
-- years 1 and 9999 a double is not precise enough.
create or replace macro milliseconds_of(instant) as epoch_us(instant) // 1000 + (epoch_us(instant) % 1000) / 1000;

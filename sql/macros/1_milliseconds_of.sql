-- The epoch milliseconds of an instant, with their fraction: what instant_of makes the same instant of. Not epoch_us / 1000:
-- at the ends of time microseconds are beyond what a double tells apart.
create or replace macro milliseconds_of(instant) as epoch_us(instant) // 1000 + (epoch_us(instant) % 1000) / 1000;

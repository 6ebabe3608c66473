-- The current time in UTC: the variable `now`, otherwise the engine's clock.
create or replace macro current_moment() as
coalesce(getvariable('now')::timestamp, make_timestamp(epoch_us(now())));

-- The moment up to which anything can have happened, in UTC: what the variable `now` says, or else the engine's clock.
create or replace macro current_moment() as
coalesce(getvariable('now')::timestamp, make_timestamp(epoch_us(now())));

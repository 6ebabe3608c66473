-- A duration if it is possible, otherwise null: one below zero or above a day comes from a changed clock, or is invented.
create or replace macro valid_duration_ms(duration_ms) as
if(duration_ms between 0 and 86400000, duration_ms, null);

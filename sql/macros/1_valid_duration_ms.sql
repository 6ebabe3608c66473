-- A duration as far as it can be one: below zero or above a day the client's clock was set meanwhile, or it is made up.
create or replace macro valid_duration_ms(duration_ms) as
if(duration_ms between 0 and 86400000, duration_ms, null);

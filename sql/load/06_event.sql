-- Accepted events that were not seen before.
insert into event by name
select * from incoming_event where arrival not in (select arrival from repeated);

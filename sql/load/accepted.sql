-- Accepted envelopes that were not seen before.
insert into event by name
select * from incoming_event where arrival not in (select arrival from repeated);

insert into action by name
select * from incoming_action where arrival not in (select arrival from repeated);

-- Accepted actions that were not seen before.
insert into action by name
select * from incoming_action where arrival not in (select arrival from repeated);

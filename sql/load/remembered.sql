-- For the segments that are loaded next, without the store being asked again.
insert into known select kind, id from arrived where kind in ('event', 'action');

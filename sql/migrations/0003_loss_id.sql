-- What makes a loss count once, however often its delivery is sent. Null where nothing in the delivery had an id, and for what
-- was loaded before there were such. Rows of one id add up: the later ones say what the first did not know yet.
alter table loss add column loss_id uuid;

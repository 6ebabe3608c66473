-- The id of a loss report, so that a retried delivery counts once. Null if the delivery contains no id, and for older rows.
-- The rows of one id add up: each later row has an increase of the count.
alter table loss add column loss_id uuid;

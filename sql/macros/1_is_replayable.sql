-- Whether a replay may accept a stored rejection, for example after an upgrade. It can't for these reasons: an id that is in
-- use stays in use, and the deployment stays outside the scope of the sender's key.
create or replace macro is_replayable(reason) as reason not in ('id_conflict', 'out_of_scope');

-- Whether a replay may accept a stored rejection, for example after an upgrade. It never accepts an
-- id_conflict, because the id stays in use, nor an out_of_scope, because the deployment stays outside the scope of the key.
create or replace macro is_replayable(reason) as reason not in ('id_conflict', 'out_of_scope');

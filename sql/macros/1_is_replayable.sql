-- Whether a stored rejection may become valid. No upgrade frees a used id, or changes the scope of a key.
create or replace macro is_replayable(reason) as reason not in ('id_conflict', 'out_of_scope');

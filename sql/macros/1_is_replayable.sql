-- Whether a kept rejection may be valid one day. No upgrade frees an id that is taken, or moves a key's scope.
create or replace macro is_replayable(reason) as reason not in ('id_conflict', 'out_of_scope');

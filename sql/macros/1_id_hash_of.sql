-- A hash of the id of an envelope, for the runs of ids of one process (docs/decisions/0035). It is not stored in the database,
-- so it may change with the version of DuckDB.
create or replace macro id_hash_of(id) as
hash(id);

-- The deployments that rows of a load name: those that arrived from loaded_from on and before loaded_until, and the kept
-- rejections that were replayed in it. What names none is not here: touched_sessions.
select deployment from event
where ingest_seq >= getvariable('loaded_from')::bigint and ingest_seq < getvariable('loaded_until')::bigint
union
select deployment from action
where ingest_seq >= getvariable('loaded_from')::bigint and ingest_seq < getvariable('loaded_until')::bigint
union
select deployment from quarantine
where ingest_seq >= getvariable('loaded_from')::bigint and ingest_seq < getvariable('loaded_until')::bigint
union
select deployment from loss
where ingest_seq >= getvariable('loaded_from')::bigint and ingest_seq < getvariable('loaded_until')::bigint
union
select deployment from sync
where ingest_seq >= getvariable('loaded_from')::bigint and ingest_seq < getvariable('loaded_until')::bigint;

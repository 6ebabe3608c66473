-- Deployments of the rows of a load, with loaded_from <= ingest_seq < loaded_until. deployments_of_sessions finds the
-- deployments of rows that name none.
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

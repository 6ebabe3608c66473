-- The deployments that rows of a load name: those that arrived from loaded_from on and before loaded_until, and the kept
-- rejections that were replayed in it. What names none is not here: touched_sessions.
select deployment from event
where arrival >= getvariable('loaded_from')::bigint and arrival < getvariable('loaded_until')::bigint
union
select deployment from action
where arrival >= getvariable('loaded_from')::bigint and arrival < getvariable('loaded_until')::bigint
union
select deployment from quarantine
where arrival >= getvariable('loaded_from')::bigint and arrival < getvariable('loaded_until')::bigint
union
select deployment from loss
where arrival >= getvariable('loaded_from')::bigint and arrival < getvariable('loaded_until')::bigint
union
select deployment from sync
where arrival >= getvariable('loaded_from')::bigint and arrival < getvariable('loaded_until')::bigint;

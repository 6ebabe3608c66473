-- The deployments that rows of a load name: those that arrived from touched_from on and before touched_until, and the kept
-- rejections that were replayed in it. What names none is not here: touched_sessions.
select deployment from event
where arrival >= getvariable('touched_from')::bigint and arrival < getvariable('touched_until')::bigint
union
select deployment from action
where arrival >= getvariable('touched_from')::bigint and arrival < getvariable('touched_until')::bigint
union
select deployment from quarantine
where arrival >= getvariable('touched_from')::bigint and arrival < getvariable('touched_until')::bigint
union
select deployment from loss
where arrival >= getvariable('touched_from')::bigint and arrival < getvariable('touched_until')::bigint
union
select deployment from sync
where arrival >= getvariable('touched_from')::bigint and arrival < getvariable('touched_until')::bigint;

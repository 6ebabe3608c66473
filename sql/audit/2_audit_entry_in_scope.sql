-- One row per entry of the audit trail that matches the filters, in the order of the trail.
create view audit_entry_in_scope as
select * from audit_entry
where (getvariable('since') is null or recorded_at >= getvariable('since')::timestamp)
    and (getvariable('until') is null or recorded_at < getvariable('until')::timestamp)
    and (getvariable('action') is null or action = getvariable('action')::varchar)
    and (getvariable('actor') is null or getvariable('actor')::varchar in (actor, actor_label))
    and (getvariable('before_number') is null or number < getvariable('before_number')::bigint);

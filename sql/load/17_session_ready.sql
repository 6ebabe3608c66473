-- Adds the deployments and tenants of the loaded `ready` events to session_ready: those with
-- loaded_from <= ingest_seq < loaded_until. The table stays empty until an event lacks a value that a `ready` event names. The
-- load that detects such an event adds all `ready` events.
insert into ready_fact
from ready_fact_of_events(getvariable('loaded_from')::bigint, getvariable('loaded_until')::bigint)
where name not in (select name from ready_fact);

-- A variable, so that the scan below is bounded by a constant. Null while no `ready` event is needed.
set variable ready_from = (
    select
        if(
            is_ready_needed(list(name)),
            if(exists (from session_ready), getvariable('loaded_from')::bigint, -1),
            null
        )
    from ready_fact
);

create or replace temp table changed_ready as
select
    loaded.key_id,
    loaded.session,
    loaded.session_digest,
    least(known.deployment_min, loaded.deployment_min) as deployment_min,
    greatest(known.deployment_max, loaded.deployment_max) as deployment_max,
    least(known.tenant_min, loaded.tenant_min) as tenant_min,
    greatest(known.tenant_max, loaded.tenant_max) as tenant_max
from (
    from session_ready_of_events(
        getvariable('ready_from')::bigint,
        if(getvariable('ready_from')::bigint < 0, 9223372036854775807, getvariable('loaded_until')::bigint)
    )
) as loaded
left join session_ready as known on known.key_id = loaded.key_id and known.session = loaded.session
where known.session is null
   or least(known.deployment_min, loaded.deployment_min) is distinct from known.deployment_min
   or greatest(known.deployment_max, loaded.deployment_max) is distinct from known.deployment_max
   or least(known.tenant_min, loaded.tenant_min) is distinct from known.tenant_min
   or greatest(known.tenant_max, loaded.tenant_max) is distinct from known.tenant_max;

delete from session_ready where (key_id, session) in (select key_id, session from changed_ready);

insert into session_ready by name from changed_ready;

drop table changed_ready;

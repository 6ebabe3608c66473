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

merge into session_ready
using (
    from session_ready_of_events(
        getvariable('ready_from')::bigint,
        if(getvariable('ready_from')::bigint < 0, 9223372036854775807, getvariable('loaded_until')::bigint)
    )
) as loaded
on session_ready.key_id = loaded.key_id and session_ready.session = loaded.session
when matched
    and (
        least(session_ready.deployment_min, loaded.deployment_min) is distinct from session_ready.deployment_min
        or greatest(session_ready.deployment_max, loaded.deployment_max) is distinct from session_ready.deployment_max
        or least(session_ready.tenant_min, loaded.tenant_min) is distinct from session_ready.tenant_min
        or greatest(session_ready.tenant_max, loaded.tenant_max) is distinct from session_ready.tenant_max
    )
    then update set
        deployment_min = least(session_ready.deployment_min, loaded.deployment_min),
        deployment_max = greatest(session_ready.deployment_max, loaded.deployment_max),
        tenant_min = least(session_ready.tenant_min, loaded.tenant_min),
        tenant_max = greatest(session_ready.tenant_max, loaded.tenant_max)
when not matched then insert by name;

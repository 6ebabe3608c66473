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

create or replace temp table loaded_ready as
from session_ready_of_events(
    getvariable('ready_from')::bigint,
    if(getvariable('ready_from')::bigint < 0, 9223372036854775807, getvariable('loaded_until')::bigint)
);

create or replace temp table known_ready as
from session_ready
where (key_id, session) in (select key_id, session from loaded_ready);

create or replace temp table changed_ready as
select
    key_id,
    session,
    session_digest,
    min(deployment_min) as deployment_min,
    max(deployment_max) as deployment_max,
    min(tenant_min) as tenant_min,
    max(tenant_max) as tenant_max
from (from loaded_ready union all by name from known_ready)
group by key_id, session, session_digest
except
from known_ready;

delete from session_ready where (key_id, session) in (select key_id, session from changed_ready);

insert into session_ready by name from changed_ready;

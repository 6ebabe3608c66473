-- One rollup row per quarter of an hour, key, deployment, tenant, session, viewer and surface, with the values as the events
-- contain them. Built from `event` alone (docs/decisions/0012). Only the macro session_quarter_between reads it, which adds the
-- events that are not rolled up yet.
create table session_quarter (
    summed_in      bigint,    -- `number` of the rollup batch
    began_at       timestamp, -- the quarter, by occurred_at
    key_id         varchar,
    deployment     bigint,
    tenant         varchar,
    session        varchar,
    viewer         varchar,
    surface        varchar,
    event_count    integer,
    view_count     integer,
    loaded_count   integer,
    download_count integer,
    drilldown_count integer,
    asked_count    integer,
    answered_count integer,
    failed_count   integer,
    error_count    integer,
    fatal_count    integer,
    first_at       timestamp,
    last_at        timestamp,
    first_value_at timestamp  -- of the first drilldown, download or AI answer
);

-- One row per rollup batch: session_quarter then contains all events with an arrival up to `up_to`.
create table summed (
    number bigint, -- from 1 on
    up_to  bigint
);

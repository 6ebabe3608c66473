-- One row per ai-query event of the rollups: the values that the pairing of stages compares, with digests of texts. Built from
-- `event` alone (docs/decisions/0012). Only the macro question_stage_between reads it, which adds the events that are not rolled
-- up yet.
create table question_stage (
    summed_in   bigint,    -- `number` of the rollup batch
    arrival     bigint,
    occurred_at timestamp,
    key_id      varchar,
    deployment  bigint,
    tenant      varchar,
    session     ubigint,  -- the macro digest_of
    viewer      varchar,
    surface     varchar,
    seq         bigint,
    status      varchar,
    agent_id    varchar,
    question    ubigint   -- of its session, chat and text: the macro question_of
);

-- All rollups are computed again, because the older ones have texts instead of digests, and no stages. A new table, because
-- DuckDB 1.5.5 can't commit a change of a column's type after rows were deleted.
drop table session_quarter;
create table session_quarter (
    summed_in      bigint,    -- `number` of the rollup batch
    began_at       timestamp, -- the quarter, by occurred_at
    key_id         varchar,
    deployment     bigint,
    tenant         varchar,
    session        ubigint,   -- the macro digest_of
    viewer         ubigint,   -- the same
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
truncate summed;

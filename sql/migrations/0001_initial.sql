-- The tables of the store. Times are UTC. No keys, indexes or constraints: docs/decisions/0002.

-- One row per accepted event (an envelope of direction `event`), as the viewer's embed reported it.
create table event (
    event_id         uuid,      -- the envelope's id; without one, an id of the server
    arrival          bigint,    -- the order of journaling: segment number × 2^32 + line
    occurred_at      timestamp, -- when it happened, by the corrected client clock
    client_at        timestamp, -- when it happened, by the raw client clock
    sent_at          timestamp,
    received_at      timestamp,
    key_id           varchar,
    deployment       bigint,
    session          varchar,
    viewer           varchar,
    tenant           varchar,
    page             varchar,
    seq              bigint,
    type             varchar,   -- without its prefix: `view`, `ai-query`
    surface          varchar,
    -- ready, view, navigate, dashboard-loaded
    mode             varchar,
    payload_surface  varchar,
    public_id        varchar,
    path             varchar,
    previous_path    varchar,
    title            varchar,
    widget_count     double,
    load_duration_ms double,
    -- download, drilldown
    format           varchar,
    target           varchar,
    widget_id        varchar,
    row_count        double,
    member           varchar,
    value            json,
    -- ai-query
    query            varchar,
    status           varchar,
    chat_id          varchar,
    agent_id         varchar,
    -- error
    message          varchar,
    error_name       varchar,
    error_context    varchar,
    fatal            boolean,
    -- members that the catalog does not contain
    extra            json,      -- of the payload
    envelope_extra   json       -- of the envelope
);

-- One row per accepted action (an envelope of direction `action`): a message from the host page to the embed.
create table action (
    action_id            uuid,
    arrival              bigint,
    occurred_at          timestamp,
    client_at            timestamp,
    sent_at              timestamp,
    received_at          timestamp,
    key_id               varchar,
    deployment           bigint,
    session              varchar,
    viewer               varchar,
    tenant               varchar,
    page                 varchar,
    seq                  bigint,
    type                 varchar,
    scheme               varchar,
    theme                json,
    locale               varchar,
    filter_url_parameter varchar,
    path                 varchar,
    extra                json,
    envelope_extra       json
);

-- One row per stored rejection: an envelope, or a whole body that could not be parsed ("index" is null).
create table quarantine (
    quarantine_id uuid,
    arrival       bigint,
    received_at   timestamp,
    sent_at       timestamp,
    key_id        varchar,
    deployment    bigint,
    session       varchar,
    viewer        varchar,
    tenant        varchar,
    page          varchar,
    "index"       bigint,    -- its index in the delivery, from 0
    reason        varchar,   -- one of the closed list in docs/wire.md
    detail        varchar,
    raw           varchar,   -- the first 16,384 characters of the rejected text; quarantine_rest has the others
    raw_length    bigint,    -- the characters of the whole text
    raw_encoding  varchar,   -- base64 if the rejected bytes are not UTF-8
    replayed_at   timestamp  -- the time at which a replay accepted it
);

-- One row per further 16,384 characters of a stored rejection. DuckDB reads 2,048 rows at a time, regardless of their length:
-- with bodies of a megabyte that would be 2 GiB.
create table quarantine_rest (
    quarantine_id uuid,
    piece         bigint,    -- from 1
    raw           varchar
);

-- One row per delivery and reason: how many events the forwarder reports as lost.
create table loss (
    arrival     bigint,
    received_at timestamp,
    key_id      varchar,
    deployment  bigint,
    session     varchar,
    reason      varchar,
    lost_count  bigint
);

-- One row per journal segment in this store, with its ledger: received = accepted + duplicate + quarantined.
-- It is inserted in one transaction with the segment's rows, so that each segment is loaded exactly once.
create table loaded_segment (
    segment           varchar,
    loaded_at         timestamp,
    byte_count        bigint,
    received_count    bigint,
    accepted_count    bigint,
    duplicate_count   bigint,
    quarantined_count bigint
);

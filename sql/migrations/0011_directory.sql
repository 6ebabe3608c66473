-- One row per user that was ever in the directory, with the newest version. A deleted user has only ingest_seq, user_id and
-- received_at, so that an older version is never loaded again.
create table directory_user (
    ingest_seq     bigint,    -- of the newest version
    user_id        varchar,   -- `id` of the SCIM resource
    received_at    timestamp,
    viewer         varchar,   -- the attribute that joins the viewers of events (macro viewer_of)
    user_name      varchar,
    display_name   varchar,
    department     varchar,
    is_active      boolean,
    deactivated_at timestamp, -- when `active` last became false; null while it is true
    resource       json       -- the whole SCIM resource
);

-- One row per group that was ever in the directory, with the newest version. A deleted group has only ingest_seq, group_id and
-- received_at.
create table directory_group (
    ingest_seq  bigint,  -- of the newest version
    group_id    varchar, -- `id` of the SCIM resource
    received_at timestamp,
    name        varchar,
    resource    json     -- the SCIM resource without its members
);

-- One row per member of a group.
create table directory_member (
    ingest_seq bigint, -- of the version of the group that added the member
    group_id   varchar,
    user_id    varchar
);

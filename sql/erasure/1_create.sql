-- Empty tables for the rows of the people to erase. `person` is the number of the first person to whom a row belongs.
create or replace temp table erased_envelope (
    person     integer,
    direction  varchar,
    ingest_seq bigint,
    key_id     varchar,
    session    varchar,
    seq        bigint
);

create or replace temp table erased_session (key_id varchar, session varchar);

create or replace temp table erased_rejection (person integer, quarantine_id uuid, ingest_seq bigint);

create or replace temp table erased_loss (person integer, loss_count bigint);

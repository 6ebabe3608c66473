-- One row per ai-query event that was summed up: what pairing stages compares, with digests of texts. Made of `event` alone
-- (docs/decisions/0012); never read but by the macro question_stage_between, which knows what is not in it.
create table question_stage (
    summed_in   bigint,    -- `number` of the summing
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

-- All is summed up once more: what was summed up before this has no stages, and texts for digests.
truncate session_quarter;
truncate summed;
alter table session_quarter alter session type ubigint using null;
alter table session_quarter alter viewer type ubigint using null;

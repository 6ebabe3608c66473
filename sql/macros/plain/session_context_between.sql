-- What the macro of this name has while no event lacks what a `ready` says: nothing that anybody needs. To plan the other takes
-- longer than many a report.
create or replace macro session_context_between(first_at, end_at) as table
select
    null::varchar as key_id,
    null::varchar as session,
    null::bigint as deployment,
    null::varchar as tenant
where false;

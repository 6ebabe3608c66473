-- The keys of the rollups to erase, and the rows that ledger/count_removed.sql counts. An event is erased because of its key, session,
-- viewer, deployment and tenant, so either all or none of the events of a row of `session_15min` are.
create or replace temp table erased_rollup as
select distinct
    key_id,
    deployment,
    tenant,
    digest_of(session) as session,
    digest_of(viewer) as viewer
from event
where ingest_seq in (select ingest_seq from erased_envelope);

create or replace temp table removed_row as
select ingest_seq, 'deleted_count' as counted_in from erased_envelope
union all
select ingest_seq, 'deleted_rejection_count' from erased_rejection;

-- A session of the person, and up to 3 long texts that no other event contains. Afterwards, the files are searched for them.
create or replace temp table erased_text as
with candidate as (
    select distinct text
    from (
        select unnest([title, value ->> '$', filters ->> '$', query, chat_id, feedback_text, message]) as text
        from event
        where ingest_seq in (select ingest_seq from erased_envelope)
    )
    where length(text) >= 16
    order by length(text) desc, text
    limit 200
),
-- Most events have none of these texts, so that their texts need not be compared one by one.
event_with_candidate as (
    select ingest_seq, title, value, filters, query, chat_id, feedback_text, message
    from event
    where title in (from candidate)
       or query in (from candidate)
       or message in (from candidate)
       or chat_id in (from candidate)
       or feedback_text in (from candidate)
       or (value ->> '$') in (from candidate)
       or (filters ->> '$') in (from candidate)
),
own_text as (
    from candidate
    where text not in (
        select text
        from (
            select unnest([title, value ->> '$', filters ->> '$', query, chat_id, feedback_text, message]) as text
            from event_with_candidate
            where ingest_seq not in (select ingest_seq from erased_envelope)
        )
        where text is not null
    )
    order by length(text) desc, text
    limit 3
)
from own_text
union all
select min(session)
from erased_session
where length(session) >= 16
having count(*) > 0;

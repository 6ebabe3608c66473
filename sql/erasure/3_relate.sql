-- The keys of the derived rows to erase: rollups, and the ledgers of the rows. An event is erased because of its key, session, viewer,
-- deployment and tenant, so either all or none of the events of a row of `session_15min` are.
create or replace temp table erased_rollup as
select distinct
    key_id,
    deployment,
    tenant,
    digest_of(session) as session,
    digest_of(viewer) as viewer
from event
where ingest_seq in (select ingest_seq from erased_envelope);

create or replace temp table erased_of_ledger as
select ledger.segment, count(*) filter (is_accepted) as accepted_count, count(*) filter (not is_accepted) as rejection_count
from (
    select ingest_seq, true as is_accepted from erased_envelope
    union all
    select ingest_seq, false from erased_rejection
) as erased
join loaded_segment as ledger
    on erased.ingest_seq >> 32 between
        coalesce(ledger.first_number, split_part(ledger.segment, '-', 1)::bigint)
        and split_part(ledger.segment, '-', 1)::bigint
group by ledger.segment;

-- Up to 10 long texts of each person that no other row contains. Afterwards, the files are searched for them.
create or replace temp table erased_text as
with text as (
    select
        ingest_seq,
        unnest([session, page, path, previous_path, title, value ->> '$', query, chat_id, message, error_context]) as text
    from event
    union all
    select ingest_seq, unnest([session, page, path, filter_url_parameter]) as text
    from action
),
candidate as (
    select erased_envelope.person, text.text
    from text
    join erased_envelope using (ingest_seq)
    where length(text.text) >= 16
    group by erased_envelope.person, text.text
    qualify row_number() over (partition by erased_envelope.person order by length(text.text) desc, text.text) <= 200
)
select person, text
from candidate
where text not in (
    select text
    from text
    where text in (select text from candidate)
      and ingest_seq not in (select ingest_seq from erased_envelope)
)
qualify row_number() over (partition by person order by length(text) desc, text) <= 10;

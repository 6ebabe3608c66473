-- One row: how many rows of each kind an erasure of the requested person would remove. With the variable `up_to`, only rows
-- up to this ingest_seq.
create or replace view person_count as
select
    count(*) filter (direction = 'event') as event_count,
    count(*) filter (direction = 'action') as action_count,
    (
        select count(*)
        from person_rejection
        join quarantine using (quarantine_id)
        where ingest_seq <= coalesce(getvariable('up_to')::bigint, ingest_seq)
    ) as rejection_count,
    (
        select count(*)
        from loss
        join person_session using (key_id, session)
        where ingest_seq <= coalesce(getvariable('up_to')::bigint, ingest_seq)
    ) as loss_count,
    (select count(*) from person_directory) as directory_user_count
from person_envelope
where ingest_seq <= coalesce(getvariable('up_to')::bigint, ingest_seq);

comment on view person_count is 'Numbers of rows of the person in the variable `viewers`.';

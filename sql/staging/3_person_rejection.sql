-- One row per stored rejection of the requested person, with its whole text, by ingest_seq. The person is that of the context, also
-- if the context was rejected.
create or replace view person_rejection as
with rest as (
    select quarantine_id, string_agg(raw, '' order by piece) as raw
    from quarantine_rest
    group by quarantine_id
),
rejection as (
    select quarantine.* replace (quarantine.raw || coalesce(rest.raw, '') as raw)
    from quarantine
    left join rest using (quarantine_id)
)
select
    quarantine_id, received_at, key_id, deployment, session, viewer, tenant, page, reason, detail, raw, raw_encoding, replayed_at
from rejection
where is_of_person(coalesce(viewer, try_cast(raw as json) ->> '$.context.viewer'), deployment, tenant)
order by ingest_seq;

comment on view person_rejection is 'Stored rejections of the person in the variable `viewers`.';

-- One row per stored rejection of the requested person, with its whole text, by ingest_seq. A delivery
-- that was rejected as a whole may name the person anywhere, as "viewer", also in a list or an object.
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
),
rejection_with_text as (
    select
        *,
        -- Input in base64 has NULs and bytes that are not ASCII. DuckDB shows them, and quotation marks, as \x and two digits.
        if(
            raw_encoding = 'base64',
            replace(replace(replace(try(from_base64(raw))::varchar, '\x00', ''), '\x22', '"'), '\x5C', '\'),
            raw
        ) as text
    from rejection
),
rejection_with_names as (
    select
        *,
        list_transform(
            flatten(
                list_transform(
                    regexp_extract_all(text, '(?i)"viewer"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9]+|\[[^\[\]]*\]|\{[^{}]*\})', 1),
                    lambda value: regexp_extract_all(value, '"(?:[^"\\]|\\.)*"|-?[0-9]+')
                )
            ),
            lambda name: try_cast(name as json) ->> '$'
        ) as viewers_in_raw,
        try_cast(try_cast(text as json) ->> '$.context.deployment' as bigint) as deployment_in_raw,
        try_cast(text as json) ->> '$.context.tenant' as tenant_in_raw
    from rejection_with_text
)
select
    rejection.quarantine_id,
    rejection.received_at,
    rejection.key_id,
    rejection.deployment,
    rejection.session,
    rejection.viewer,
    rejection.tenant,
    rejection.page,
    rejection.reason,
    rejection.detail,
    rejection.raw,
    rejection.raw_encoding,
    rejection.replayed_at
from rejection_with_names as rejection
left join session_context_between(null, null) as context using (key_id, session)
where is_of_person(
    coalesce(
        rejection.viewer,
        list_filter(viewers_in_raw, lambda name: list_contains(getvariable('viewers')::varchar[], name))[1],
        -- Input that is not JSON may have the viewer anywhere.
        if(
            try_cast(text as json) is null,
            list_filter(
                getvariable('viewers')::varchar[],
                lambda name: contains(text, concat('"', name, '"'))
                    or contains(text, concat('''', name, ''''))
                    or contains(concat('&', text, '&'), concat('&viewer=', url_encode(name), '&'))
            )[1],
            null
        )
    ),
    coalesce(rejection.deployment, deployment_in_raw, context.deployment),
    coalesce(rejection.tenant, tenant_in_raw, context.tenant)
)
order by rejection.ingest_seq;

comment on view person_rejection is 'Stored rejections of the person in the variable `viewers`.';

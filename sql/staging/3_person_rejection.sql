-- One row per stored rejection of the requested person, with its whole text, by ingest_seq. A delivery
-- that was rejected as a whole may name the person in any value of `viewer`, at any depth, as `viewers_in` in erased_people.py.
create or replace view person_rejection as
with rejection_with_kind as (
    select
        *,
        json_text is not null and reason <> 'too_deep' as is_valid,
        -- Most rejections do not have it, and extracting viewers from a text takes longer than searching it for this word.
        regexp_matches(coalesce(json_text, text), '(?i)viewer') as may_name_person
    from rejection_text
    where viewer is not null or raw <> ''
),
rejection_with_names as (
    select
        *,
        list_transform(
            flatten(
                list_transform(
                    list_concat(
                        -- An array or object may contain others, in as many levels as EMBEDSINK_DEPTH_MAX allows at most.
                        regexp_extract_all(
                            if(may_name_person and is_valid, json_text, null),
                            concat(
                                '(?i)(?:^|[^\\])"viewer"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9][0-9.e+-]*|',
                                repeat('[\[{](?:[^\[\]{}"]|"(?:[^"\\]|\\.)*"|', 200),
                                '[\[{][\]}]',
                                repeat(')*[\]}]', 200),
                                ')'
                            ),
                            1
                        ),
                        -- In other input, only one level: brackets that are not closed would take quadratic time.
                        regexp_extract_all(
                            if(may_name_person and not is_valid, text, null),
                            '(?i)(?:^|[^\\])"viewer"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9][0-9.e+-]*|\[[^\[\]]*\]|\{[^{}]*\})',
                            1
                        )
                    ),
                    lambda value: regexp_extract_all(value, '"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*')
                )
            ),
            -- A number such as 4711.0 also counts as the integer.
            lambda name: [
                try_cast(name as json) ->> '$',
                if(try_cast(name as double) % 1 = 0, try_cast(try_cast(name as double) as hugeint)::varchar, null)
            ]
        ) as names_in_raw,
        try_cast(json_text ->> '$.context.deployment' as bigint) as deployment_in_raw,
        json_text ->> '$.context.tenant' as tenant_in_raw
    from rejection_with_kind
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
    rejection.vendor,
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
        list_filter(flatten(names_in_raw), lambda name: list_contains(getvariable('viewers')::varchar[], name))[1],
        -- Input that is not JSON, or is nested too deeply, may have the viewer anywhere.
        if(
            not is_valid,
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

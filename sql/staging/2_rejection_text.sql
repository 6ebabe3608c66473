-- One row per stored rejection, with its whole input: as it is stored in `raw`, decoded in `text`, and normalized in `json_text`.
create or replace view rejection_text as
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
)
select
    *,
    -- Without white space and without escapes of ASCII characters; null if the input is not JSON.
    try(json(text))::varchar as json_text
from rejection_with_text;

comment on view rejection_text is 'Stored rejections with their whole input as text and as JSON.';

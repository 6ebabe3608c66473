-- One row per text in the variable `texts` that a stored row contains, also as a part of another text.
create or replace view shared_text as
with stored as (
    select concat_ws(chr(10),
        viewer, session, tenant, page, path, previous_path, title, value ->> '$', filters ->> '$', query, chat_id, feedback_text, message, error_context,
        public_id, extra ->> '$', envelope_extra ->> '$'
    ) as texts
    from event
    union all
    select concat_ws(chr(10), viewer, session, tenant, page, path, filter_url_parameter, extra ->> '$', envelope_extra ->> '$')
    from action
    union all
    select concat_ws(chr(10), viewer, session, tenant, page, detail, raw)
    from quarantine
    union all
    select raw
    from quarantine_rest
    union all
    select resource ->> '$'
    from directory_user
)
select searched.text
from (select unnest(getvariable('texts')::varchar[]) as text) as searched
where exists (from stored where contains(stored.texts, searched.text));

comment on view shared_text is 'Texts in the variable `texts` that stored rows contain, also as a part of another text.';

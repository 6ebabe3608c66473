-- One row: how many stored rejections without a viewer have one of the texts in the variable `texts` as a whole text. A text
-- with fewer than eight bytes needs quotation marks around it, because other texts contain it by chance.
create or replace view unnamed_rejection_count as
with rejection as (
    select concat_ws(chr(10), detail, coalesce(json_text, text)) as content
    from rejection_text
    where viewer is null
),
pattern as (
    select list_transform(
        -- In JSON, quotation marks and backslashes of a text are escaped.
        list_distinct(flatten([[text, (to_json(text)::varchar)[2:-2]] for text in getvariable('texts')::varchar[]])),
        lambda text: {
            'text': text,
            'pattern': if(
                strlen(text) < 8,
                concat('["'']', regexp_escape(text), '\\?["'']'),
                concat('(?:^|[^\pL\pN_]|\\[bfnrt])', regexp_escape(text), '(?:$|[^\pL\pN_])')
            )
        }
    ) as patterns
)
select count(*) as rejection_count
from rejection, pattern
where len(list_filter(
    pattern.patterns,
    -- Searching for the text alone takes less time, and most rejections do not have it.
    lambda one: if(contains(rejection.content, one.text), regexp_matches(rejection.content, one.pattern), false)
)) > 0;

comment on view unnamed_rejection_count is 'Number of stored rejections without a viewer that have a text in the variable `texts`.';

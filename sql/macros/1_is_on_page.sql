-- Whether a row is on the page that the variables `page_after` and `page_up_to` limit (store/reader.py).
create or replace macro is_on_page(number) as
(
    (getvariable('page_after') is null or number > getvariable('page_after')::bigint)
    and (getvariable('page_up_to') is null or number <= getvariable('page_up_to')::bigint)
);

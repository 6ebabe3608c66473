-- Whether a view has to return only the rows of a page: page_after or page_up_to is set.
create or replace macro is_paginated() as
(getvariable('page_after') is not null or getvariable('page_up_to') is not null);

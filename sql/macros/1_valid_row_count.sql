-- A count of exported rows as far as it can be one: nobody exports more than a hundred billion, and sums of larger claims
-- would overflow; and no row is exported in part.
create or replace macro valid_row_count(row_count) as
if(row_count between 0 and 1e11 and row_count = floor(row_count), row_count, null);

-- A number of exported rows if it is possible (an integer from 0 to a hundred billion), otherwise null. Sums of larger claims
-- would overflow.
create or replace macro valid_row_count(row_count) as
if(row_count between 0 and 1e11 and row_count = floor(row_count), row_count, null);

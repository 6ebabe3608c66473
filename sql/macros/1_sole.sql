-- The value of a group with one row; null for more rows, because distinct counts, rates and medians of several totals can't be added.
create or replace macro sole(value) as if(count(*) = 1, any_value(value), null);

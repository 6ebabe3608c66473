-- One row per key with stored rejections of the current UTC day: their number, and approximately their bytes in the journal.
create or replace view quarantine_today as
select key_id, sum(raw_length + 256)::bigint as byte_count, count(*) as row_count
from quarantine
where received_at >= date_trunc('day', current_moment())
group by key_id;

comment on view quarantine_today is 'Stored rejections of the current UTC day, by key.';

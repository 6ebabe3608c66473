-- One row per future file: the rows to archive of one table and month.
select month, kind, min(ingest_seq) as first_ingest_seq, max(ingest_seq) as last_ingest_seq, count(*) as row_count
from archive_row
group by month, kind
order by month, kind;

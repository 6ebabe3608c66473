-- Stores rejections in rows of limited width: see quarantine_rest in sql/migrations.
insert into quarantine by name
select * replace (substring(raw, 1, 16384) as raw), length(raw) as raw_length from incoming_rejection;

insert into quarantine_rest by name
select quarantine_id, piece, substring(raw, piece * 16384 + 1, 16384) as raw
from (select quarantine_id, raw, unnest(range(1, (length(raw) - 1) // 16384 + 1)) as piece from incoming_rejection);

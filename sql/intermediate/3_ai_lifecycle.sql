-- One row per AI query in scope (ai_pair), with its session, chat and text: texts are read for the paired rows only.
create or replace view ai_lifecycle as
select
    ai_pair.*,
    least(submitted_ingest_seq, finished_ingest_seq) as ingest_seq,
    event.session,
    event.chat_id,
    event.query
from ai_pair
join event on event.ingest_seq = coalesce(submitted_ingest_seq, finished_ingest_seq);

comment on view ai_lifecycle is 'AI queries in scope: session, text, when each was asked, and when and how it ended.';

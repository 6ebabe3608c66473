-- One row per AI query in scope, as ai_pair has them, with who asked what: texts are read once stages are paired.
create or replace view ai_lifecycle as
select
    ai_pair.*,
    least(submitted_ingest_seq, finished_ingest_seq) as ingest_seq,
    event.session,
    event.chat_id,
    event.query
from ai_pair
join event on event.ingest_seq = coalesce(submitted_ingest_seq, finished_ingest_seq);

comment on view ai_lifecycle is 'Every AI query in scope: when it was asked, when and how it ended, by whom and in which words.';

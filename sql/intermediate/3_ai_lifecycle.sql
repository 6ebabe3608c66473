-- One row per AI query in scope, as ai_pair has them, with who asked what: texts are read once stages are paired.
create or replace view ai_lifecycle as
select
    ai_pair.*,
    least(submitted_arrival, finished_arrival) as arrival,
    event.session,
    event.chat_id,
    event.query
from ai_pair
join event on event.arrival = coalesce(submitted_arrival, finished_arrival);

comment on view ai_lifecycle is 'Every AI query in scope: when it was asked, when and how it ended, by whom and in which words.';

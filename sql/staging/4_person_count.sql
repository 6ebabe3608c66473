-- One row: how many rows of each kind an erasure of the requested person would remove.
create or replace view person_count as
select
    count(*) filter (direction = 'event') as event_count,
    count(*) filter (direction = 'action') as action_count,
    (select count(*) from person_rejection) as rejection_count,
    (select count(*) from person_loss) as loss_count,
    (select count(*) from person_directory) as directory_user_count
from person_envelope;

comment on view person_count is 'Numbers of rows of the person in the variable `viewers`.';

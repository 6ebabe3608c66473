-- Marks rejections that a replay accepted.
create or replace temp table replayed_rejection as
select quarantine.* replace (replay.replayed_at as replayed_at)
from quarantine
join (
    select quarantine_id::uuid as quarantine_id, make_timestamp(max(received_at) * 1000) as replayed_at
    from line
    where kind = 'replayed'
    group by all
) as replay using (quarantine_id);

delete from quarantine where quarantine_id in (select quarantine_id from replayed_rejection);

insert into quarantine by name from replayed_rejection;

drop table replayed_rejection;

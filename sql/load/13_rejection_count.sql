-- Adds the temporary table counted_rejection to rejection_count: one row per key, deployment, reason and quarter of an hour.
create or replace temp table changed_rejection_count as
select
    key_id,
    deployment,
    reason,
    began_at,
    sum(rejected_count)::bigint as rejected_count,
    sum(replayed_count)::bigint as replayed_count,
    max(last_received_at) as last_received_at
from (
    from counted_rejection
    union all by name
    from rejection_count
    where (key_id, reason, began_at) in (select key_id, reason, began_at from counted_rejection)
)
group by all;

delete from rejection_count
where (key_id, reason, began_at) in (select key_id, reason, began_at from changed_rejection_count);

insert into rejection_count by name from changed_rejection_count;

drop table changed_rejection_count;

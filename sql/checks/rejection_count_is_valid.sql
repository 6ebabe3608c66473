-- One row per impossible count of rejections: no rejections, more replayed than rejected, no key or reason, a missing time or
-- one outside its quarter of an hour, or several counts for one key, deployment, reason and quarter of an hour.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report,
-- then run `embedsink rebuild`.
select *
from rejection_count
where coalesce(rejected_count, 0) <= 0
   or coalesce(replayed_count, -1) not between 0 and rejected_count
   or key_id is null
   or reason is null
   or began_at is null
   or began_at <> time_bucket(interval 15 minutes, began_at)
   or last_received_at is null
   or last_received_at not between began_at and began_at + interval 15 minutes
union all by name
select *
from rejection_count
qualify count(*) over (partition by key_id, deployment, reason, began_at) > 1
order by began_at;

-- One row: the number of stored rejections that a replay skips. If `quarantine_id` is set, only that rejection counts.
create or replace view quarantine_not_replayable as
select count(*) as not_replayable_count
from quarantine
where replayed_at is null
  and (not is_replayable(reason) or whole_bytes is not null)
  and (getvariable('quarantine_id') is null or quarantine_id = getvariable('quarantine_id')::uuid);

comment on view quarantine_not_replayable is 'The number of stored rejections that a replay skips.';

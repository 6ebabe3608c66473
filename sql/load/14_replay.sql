-- Marks rejections that a replay accepted.
update quarantine set replayed_at = make_timestamp(replay.received_at * 1000)
from (select quarantine_id, received_at from line where kind = 'replayed') as replay
where quarantine.quarantine_id = replay.quarantine_id::uuid;

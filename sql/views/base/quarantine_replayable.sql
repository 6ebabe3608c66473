-- One row per kept rejection that may be tried again, oldest first: not replayed yet, and not one whose id is taken.
-- Times are in epoch milliseconds, as a delivery has them.
create or replace view quarantine_replayable as
select
    quarantine_id,
    epoch_ms(received_at) as received_at_ms,
    epoch_ms(sent_at) as sent_at_ms,
    key_id,
    deployment,
    session,
    viewer,
    tenant,
    page,
    raw,
    raw_encoding
from quarantine_in_scope
where replayed_at is null and reason not in ('id_conflict', 'out_of_scope')
order by arrival;

comment on view quarantine_replayable is 'Kept rejections that may be tried again, oldest first.';

-- One row per period and reason of rejections, by received_at: the other times of a rejection can't be trusted.
-- A replayed rejection stays in its period.
-- Traits: quarantine.
create or replace view rejections as
select
    period_of(received_at) as period_start,
    reason,
    sum(rejected_count)::bigint as quarantined_count,
    sum(replayed_count)::bigint as replayed_count,
    max(last_received_at) as last_received_at
from rejection_count_in_scope
group by period_start, reason
order by period_start, reason;

comment on view rejections is
'Rejections
What was rejected, why, and how much of it was accepted later?
One row per period and reason.';
comment on column rejections.period_start is 'Start of the hour, day, week (Monday) or month of receipt, in UTC.';
comment on column rejections.reason is 'Reason for the rejection, from the closed list in docs/wire.md.';
comment on column rejections.quarantined_count is
'Rejected envelopes and bodies, including those that were replayed, purged or only counted.';
comment on column rejections.replayed_count is 'Rejections that a replay accepted, at any time.';
comment on column rejections.last_received_at is 'Time of receipt of the last rejection, in UTC.';

-- One row per period and reason for which something was rejected. Periods go by received_at: what was rejected has no
-- other time that could be trusted. Of what is replayed the rejection stays, in its period.
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
What was rejected and why, and how much of it was accepted after all?
One row per period and reason.';
comment on column rejections.period_start is
'Start of the hour, day, week (Monday) or month in which it was received, in UTC.';
comment on column rejections.reason is 'Why it was rejected: one of the closed list in docs/wire.md.';
comment on column rejections.quarantined_count is 'Rejected envelopes and bodies: those replayed since, purged since or only counted are included.';
comment on column rejections.replayed_count is 'Those of them that were accepted after all, whenever that was.';
comment on column rejections.last_received_at is 'When the last of them was received, in UTC.';

-- One row per period and deployment with received, missing or lost events.
-- A lost event is also missing once a later event of its session arrives, so the two counts must not be added.
-- Traits: windows.
create or replace view completeness as
with reported_loss as (
    select
        period_of(received_at) as period_start,
        deployment,
        reason,
        -- Senders choose the counts, so each has a limit: the sum must not overflow.
        sum(least(lost_count, 1000000000))::bigint as lost,
        row_number() over (partition by period_start, deployment order by lost desc, reason) as rank
    from loss_in_scope
    where lost_count > 0
    group by period_start, deployment, reason
),
period_count as (
    select period_of(began_at) as period_start, deployment, sum(event_count) as received
    from session_15min_in_scope
    group by period_start, deployment
    union all by name
    select period_of(occurred_at) as period_start, deployment, sum(missing_count) as missing
    from seq_gap
    group by period_start, deployment
    union all by name
    select
        period_start,
        deployment,
        sum(lost) as lost,
        -- Senders choose the reasons, so their number needs a limit.
        to_json(map_from_entries(list((reason, lost) order by rank) filter (rank <= 32))) as lost_by_reason
    from reported_loss
    group by period_start, deployment
)
select
    period_start,
    deployment,
    coalesce(sum(received), 0)::bigint as received_count,
    coalesce(sum(missing), 0)::bigint as missing_count,
    coalesce(sum(lost), 0)::bigint as lost_count,
    coalesce(any_value(lost_by_reason), '{}'::json) as lost_by_reason,
    received_count / nullif(received_count + missing_count, 0) as completeness_rate
from period_count
group by period_start, deployment
order by period_start, deployment;

comment on view completeness is
'Completeness
What share of the events was received, and how many were lost?
One row per period and deployment.';
comment on column completeness.period_start is 'Start of the hour, day, week (Monday) or month, in UTC.';
comment on column completeness.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column completeness.received_count is 'Events received, with or without a sequence number.';
comment on column completeness.missing_count is
'Sequence numbers (seq) that no event or action has, below the highest one of the session.';
comment on column completeness.lost_count is 'Events that forwarders reported as lost, by the time of the report.';
comment on column completeness.lost_by_reason is
'lost_count by the forwarders'' reasons, as a JSON object with the 32 most frequent reasons.';
comment on column completeness.completeness_rate is
'received_count ÷ (received_count + missing_count); null when both are 0. Unit: share.';

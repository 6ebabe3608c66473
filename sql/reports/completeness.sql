-- One row per period and deployment of which events were received, are missing, or were reported lost by a forwarder.
-- What is lost is often missing as well, when later events of its session show the gap: so the two are never added.
-- Traits: windows.
create or replace view completeness as
with lost as (
    select
        period_of(received_at) as period_start,
        deployment,
        reason,
        -- More than that no forwarder can have given up at once; sums of larger claims would overflow.
        sum(least(lost_count, 1000000000))::bigint as lost,
        row_number() over (partition by period_start, deployment order by lost desc, reason) as place
    from loss_in_scope
    where lost_count > 0
    group by period_start, deployment, reason
),
counted as (
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
        -- The reasons are the senders' own words, so there may be any number of them.
        to_json(map_from_entries(list((reason, lost) order by place) filter (place <= 32))) as lost_by_reason
    from lost
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
from counted
group by period_start, deployment
order by period_start, deployment;

comment on view completeness is
'Completeness
How much of what happened has arrived, and what is known to be lost?
One row per period and deployment.';
comment on column completeness.period_start is 'Start of the hour, day, week (Monday) or month, in UTC.';
comment on column completeness.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column completeness.received_count is 'Events received, whether they are numbered or not.';
comment on column completeness.missing_count is
'Numbers (seq) that no event or action of the session has, before the highest that one has.';
comment on column completeness.lost_count is 'Events that forwarders said they had to give up, by when they said so.';
comment on column completeness.lost_by_reason is
'lost_count by the forwarders'' own reasons, as a JSON object: the 32 most frequent.';
comment on column completeness.completeness_rate is
'received_count of received_count and missing_count together; null when there is neither. Unit: share.';

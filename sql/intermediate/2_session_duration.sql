-- One row per deployment and session of session_event: the time between its consecutive events, without long gaps (macro
-- active_us).
create or replace view session_duration as
with spent as (
    select
        deployment,
        session,
        active_us(lag(occurred_at) over (partition by session, deployment order by occurred_at), occurred_at) as spent_us
    from session_event
)
select deployment, session, sum(spent_us) / 1e6 as duration_s
from spent
group by deployment, session;

comment on view session_duration is
'Active time of each session in scope: the time between its events, without gaps of more than session_gap_minutes (30).';

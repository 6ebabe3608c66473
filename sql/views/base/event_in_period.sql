-- One row per event in scope (event_in_scope), with the start of the period in which it happened as period_start.
-- The way into the reader's time zone is what costs: for each event it takes two to five times as long as all the rest. From 2012
-- on no period of any time zone begins within a quarter of an hour (a test looks at each), so each quarter goes it once,
-- for all of its events. In UTC none does, and nothing is joined.
create or replace view event_in_period as
with quarter as (
    select began_at, period_of(began_at) as period_start
    from (
        select distinct time_bucket(interval 15 minutes, occurred_at) as began_at
        from event
        where getvariable('timezone') is not null and is_in_period(occurred_at) and occurred_at >= timestamp '2012-01-01'
    )
)
select
    event_in_scope.*,
    if(
        getvariable('timezone') is null or occurred_at < timestamp '2012-01-01',
        period_of(occurred_at),
        period_start
    ) as period_start
from event_in_scope
left join quarter on began_at = time_bucket(interval 15 minutes, occurred_at);

comment on view event_in_period is 'Every event in scope, with the start of the period in which it happened.';

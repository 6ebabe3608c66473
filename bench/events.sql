-- The events of a year of growing use: eleven events per session, a few deployments with most of the viewers, and many
-- dashboards with few views. Variables: event_count, ends_at (timestamp), and day_count instead of a year. The random numbers a
-- to d, from 0 to 1, are hashes, so that all runs have equal events.

-- One row per session, in the order of their start.
create temp table visit as
with random_number as (
    select i, hash(i, 1) / 2::double ^ 64 as a, hash(i, 2) / 2::double ^ 64 as b, hash(i, 3) / 2::double ^ 64 as c, hash(i, 4) / 2::double ^ 64 as d
    from range(getvariable('event_count')::bigint // 11) as t(i)
)
select
    i as number,
    getvariable('ends_at')::timestamp - to_seconds(86400 * coalesce(getvariable('day_count')::bigint, 365) * (1 - sqrt((i + 1) / (getvariable('event_count')::bigint // 11)))) as began_at,
    1 + (40 * a ^ 3)::bigint as deployment,
    'tenant ' || (1 + (40 * a ^ 3)::bigint) || '-' || (6 * b)::bigint as tenant,
    'viewer ' || (60000 * b ^ 2)::bigint as viewer,
    case when c < 0.6 then 'dashboard' when c < 0.85 then 'app' else 'chat' end as surface,
    'dashboard ' || (300 * d ^ 2)::bigint as public_id
from random_number;

-- One row per action of a viewer, with the events that it sends: two on average.
create temp table viewer_action as
with random_number as (
    select
        visit.*,
        action_number,
        hash(number, action_number, 5) / 2::double ^ 64 as a,
        hash(number, action_number, 6) / 2::double ^ 64 as b
    from visit, range(6) as t(action_number)
)
select
    *,
    case
        when action_number = 0 then if(surface = 'dashboard', ['ready', 'view', 'dashboard-loaded'], ['ready', 'view'])
        when surface = 'chat' or a < 0.12 then if(b < 0.93, ['submitted', if(b < 0.86, 'completed', 'error')], ['submitted'])
        when a < 0.45 then if(surface = 'dashboard', ['navigate', 'view', 'dashboard-loaded'], ['navigate', 'view'])
        when a < 0.80 then ['drilldown']
        when a < 0.97 then ['download']
        else ['failure']
    end as stages
from random_number;

insert into event by name
with stage as (
    select * exclude (stages), unnest(stages) as stage, generate_subscripts(stages, 1) as position from viewer_action
),
sent as (
    select *, row_number() over (partition by number order by action_number, position) - 1 as seq from stage
)
select
    uuid() as event_id,
    4294967296 * (1 + number // 2000) + row_number() over () as ingest_seq,
    began_at + to_milliseconds(action_number * 40000 + position * 900 + (4000 * b)::bigint) as occurred_at,
    occurred_at as client_at,
    occurred_at + interval 1 second as sent_at,
    occurred_at + interval 1 second as received_at,
    'k_bench' as key_id,
    deployment,
    'session ' || number as session,
    viewer,
    tenant,
    seq,
    case when stage in ('submitted', 'completed', 'error') then 'ai-query' when stage = 'failure' then 'error' else stage end as type,
    surface,
    case when stage = 'ready' then 'signed' end as mode,
    case when stage in ('view', 'dashboard-loaded', 'ready') then surface end as payload_surface,
    case when stage in ('view', 'navigate') then '/d/' || public_id end as path,
    case when stage in ('view', 'dashboard-loaded') then public_id end as public_id,
    case when stage in ('view', 'dashboard-loaded') then 'Title of ' || public_id end as title,
    case when stage = 'navigate' then '/' end as previous_path,
    case when stage = 'dashboard-loaded' then 4 + number % 9 end as widget_count,
    case when stage = 'dashboard-loaded' then 300 + round(4000 * b ^ 4) end as load_duration_ms,
    case when stage = 'download' then ['csv', 'xlsx', 'png', 'pdf'][1 + (4 * b)::bigint % 4] end as format,
    case when stage = 'download' then if(b < 0.7, 'widget', 'dashboard') end as target,
    case when stage = 'download' and b < 0.7 then 'widget ' || (30 * a)::bigint end as widget_id,
    case when stage = 'download' and b < 0.5 then (10000 * a)::bigint end as row_count,
    case when stage = 'drilldown' then 'orders.measure_' || (60 * b ^ 2)::bigint end as member,
    case
        when type = 'ai-query'
        then ['revenue by region in ' || (2020 + number % 7), 'top ' || (5 + number % 20) || ' customers', 'why did churn rise?'][1 + action_number % 3]
    end as query,
    case when type = 'ai-query' then stage end as status,
    case when type = 'ai-query' then 'chat ' || number end as chat_id,
    case when stage in ('completed', 'error') then 'agent ' || deployment % 3 end as agent_id,
    case when stage = 'failure' then 'request ' || number || ' failed with 50' || number % 4 end as message,
    case when stage = 'failure' then ['TypeError', 'NetworkError', 'QueryError'][1 + number % 3] end as error_name,
    case when stage = 'failure' then 'widget' end as error_context,
    case when stage = 'failure' then b < 0.1 end as fatal
from sent
where hash(number, seq, 7) % 500 > 0 -- lost events
order by number, seq;

insert into loaded_segment by name
select
    lpad((ingest_seq >> 32)::varchar, 12, '0') || '-00000000.ndjson' as segment,
    max(received_at) as loaded_at,
    count(*) * 480 as byte_count,
    count(*) as received_count,
    count(*) as accepted_count,
    0 as duplicate_count,
    0 as quarantined_count
from event
group by ingest_seq >> 32
order by segment;

insert into journal_hour
select min(ingest_seq), min(received_at)
from event
group by date_trunc('hour', received_at);

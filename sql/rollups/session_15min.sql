-- Adds the events of a batch to session_15min. Events from before 2012 are never added: reports read them one by one.
insert into session_15min by name
select
    getvariable('batch_id')::bigint as batch_id,
    began_at,
    key_id,
    deployment,
    tenant,
    session,
    viewer,
    surface,
    is_internal,
    vendor,
    sum(columns('^(.*_count)$')) as '\1',
    min(first_at) as first_at,
    max(last_at) as last_at,
    min(first_value_at) as first_value_at
from session_15min_of_event()
where ingest_seq between getvariable('rollup_from')::bigint and getvariable('rollup_to')::bigint
  and occurred_at >= timestamp '2012-01-01'
group by all
-- Sorted by arrival, so that a period is in few row groups.
order by min(ingest_seq);

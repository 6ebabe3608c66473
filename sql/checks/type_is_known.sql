-- One row per type and surface that the catalog (spec 6.3, 6.5, and our extensions) does not contain, and the number of its rows.
-- What to do: envelope validation has a bug. Report it. The rows stay; unknown types count only in totals of all events.
with stored as (
    select 'event' as direction, type, surface from event
    union all
    select 'action', type, null from action
),
known as (
    select 'event' as direction, unnest(['ready', 'view', 'navigate', 'ai-query', 'error', 'x-filter', 'x-feedback']) as type,
        ['dashboard', 'app', 'chat'] as surfaces
    union all
    select 'event', unnest(['dashboard-loaded', 'download', 'drilldown']), ['dashboard']
    union all
    select
        'action',
        unnest(['set-color-scheme', 'set-theme', 'set-locale', 'set-filter', 'navigate', 'refresh']),
        [null]
)
select direction, type, surface, count(*) as row_count
from stored
left join known using (direction, type)
where known.surfaces is null
   or (direction = 'event' and not coalesce(list_contains(surfaces, surface), false))
group by all
order by all;

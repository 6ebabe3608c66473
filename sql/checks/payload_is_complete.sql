-- One row per event whose payload lacks a field that its type requires (spec 6.4, and our extensions), or has a value that is not
-- allowed.
-- What to do: envelope validation or sql/load has a bug. Report it with the row. The row stays; reports count it under null.
select event_id, ingest_seq, type, received_at
from event
where not coalesce(
    case type
        when 'ready' then mode in ('signed', 'private') and payload_surface in ('dashboard', 'app', 'chat')
        when 'view' then payload_surface in ('dashboard', 'app', 'chat') and path is not null
        when 'navigate' then path is not null
        when 'download' then format in ('csv', 'xlsx', 'png', 'pdf') and target in ('widget', 'dashboard')
        when 'drilldown' then member is not null
        when 'ai-query' then query is not null and status in ('submitted', 'completed', 'error')
        when 'error' then message is not null
        when 'x-feedback' then chat_id is not null and rating in ('up', 'down')
        else true
    end,
    false
)
order by ingest_seq;

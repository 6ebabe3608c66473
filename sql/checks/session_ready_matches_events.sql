-- One row per key and session for which session_ready differs from the `ready` events. Views take missing deployments and
-- tenants from that table. It is empty until an event lacks a value that a `ready` event names.
-- What to do: the store was changed by hand, or the loader has a bug. Save a copy of the data folder for the bug report,
-- then run `embedsink rebuild`: it fills the table again.
with expected as (
    from session_ready_of_events(-1, 9223372036854775807)
    where exists (from session_ready)
       or (select is_ready_needed(list(name)) from ready_fact_of_events(-1, 9223372036854775807))
)
select 'events' as only_in, * from (from expected except all from session_ready)
union all
select 'session_ready', * from (from session_ready except all from expected)
order by key_id, session, only_in;

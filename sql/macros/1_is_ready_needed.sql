-- Whether these facts (table ready_fact) state that an event lacks a value that a `ready` event names.
create or replace macro is_ready_needed(names) as
list_has_all(names, ['lacks_deployment', 'ready_names_deployment'])
or list_has_all(names, ['lacks_tenant', 'ready_names_tenant']);

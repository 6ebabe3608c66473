-- One row per quarter of an hour in which a session, viewer and surface in scope did something, with what they did; there may
-- be several of one kind (see the macro session_15min_between). It adds up to event_in_scope, and is a tenth of it.
create or replace view session_15min_in_scope as
from session_15min_between(getvariable('since')::timestamp, getvariable('until')::timestamp);

comment on view session_15min_in_scope is
'What each session did in each quarter of an hour in scope: the events of event_in_scope, counted.';

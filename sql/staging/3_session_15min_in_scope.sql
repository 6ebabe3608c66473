-- One row per quarter of an hour, session, viewer and surface in scope, with counts of its events; several rows may have the
-- same key (macro session_15min_between). The view has about a tenth of the rows of event_in_scope, and the same sums.
create or replace view session_15min_in_scope as
from session_15min_between(getvariable('since')::timestamp, getvariable('until')::timestamp);

comment on view session_15min_in_scope is 'Events in scope, counted by quarter of an hour, session, viewer and surface.';

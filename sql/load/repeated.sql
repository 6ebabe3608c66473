-- One row per delivered envelope whose id was seen before: earlier in this segment, or in the last days of the store.
create or replace temp table repeated as
with turned as (
    select kind, id, arrival, row_number() over (partition by kind, id order by arrival) as turn
    from arrived
    where kind in ('event', 'action')
)
select kind, id, arrival, turn
from turned
where turn > 1 or (kind, id) in (select (kind, id) from known);

-- Those of them whose content is not that of the first: conflict.sql finds them.
create or replace temp table conflict (arrival bigint, id uuid);

-- What goes into quarantine, whole: rejected.sql and conflicting.sql fill it.
create or replace temp table rejected as
select * exclude (raw_length, replayed_at) from quarantine limit 0;

-- What forwarders had to give up.
insert into loss by name
select
    arrival,
    make_timestamp(received_at * 1000) as received_at,
    key_id,
    context.deployment as deployment,
    context.session as session,
    reason,
    lost_count
from line
where kind = 'lost';

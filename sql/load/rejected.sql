-- Inputs that were rejected on arrival.
insert into rejected by name
select
    quarantine_id::uuid as quarantine_id,
    arrival,
    make_timestamp(received_at * 1000) as received_at,
    make_timestamp((sent_at * 1000)::bigint) as sent_at,
    key_id,
    context.deployment as deployment,
    context.session as session,
    context.viewer as viewer,
    context.tenant as tenant,
    context.page as page,
    "index",
    reason,
    detail,
    raw,
    raw_encoding
from line
where kind = 'quarantined';

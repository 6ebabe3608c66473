-- One row per kept rejection that may be tried again (quarantine_untried counts the others), oldest first: not replayed yet.
-- The one that `quarantine_id` names, where it is asked for. After the arrival `after`, one and as many more as are small:
-- whole bodies of a megabyte must fit into memory. Times are in epoch milliseconds, as a delivery has them. `raw` is all of it.
create or replace view quarantine_replayable as
with candidate as (
    select arrival, quarantine_id, raw_length
    from quarantine
    where replayed_at is null
      and may_be_tried_again(reason)
  and whole_bytes is null
      and arrival > coalesce(getvariable('after')::bigint, -1)
      and (getvariable('quarantine_id') is null or quarantine_id = getvariable('quarantine_id')::uuid)
    order by arrival
    limit 64
),
next as (
    select arrival, quarantine_id
    from candidate
    qualify sum(raw_length) over (order by arrival) - raw_length < 262144
),
rest as (
    select quarantine_id, string_agg(raw, '' order by piece) as raw
    from quarantine_rest
    where quarantine_id in (select quarantine_id from next)
    group by quarantine_id
)
select
    quarantine_id,
    arrival,
    epoch_ms(received_at) as received_at_ms,
    milliseconds_of(sent_at) as sent_at_ms,
    key_id,
    deployment,
    session,
    viewer,
    tenant,
    page,
    quarantine.raw || coalesce(rest.raw, '') as raw,
    raw_encoding
from quarantine
left join rest using (quarantine_id)
where arrival in (select arrival from next)
order by arrival;

comment on view quarantine_replayable is 'Kept rejections that may be tried again, oldest first.';

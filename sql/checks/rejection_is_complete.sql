-- One row per incomplete stored rejection: without an id, reason, detail, key or time, replayed before its receipt, with an
-- unknown encoding, a missing piece or a length other than raw_length, or whole_sha256 without whole_bytes.
-- What to do: the rejection can't be replayed. Report it with a copy of the data folder, then run `embedsink rebuild`.
with rest as (
    select quarantine_id, count(*) as piece_count, max(piece) as last_piece, sum(length(raw)) as rest_length
    from quarantine_rest
    group by quarantine_id
)
select quarantine_id, ingest_seq, received_at, reason, raw_length
from quarantine
left join rest using (quarantine_id)
where quarantine_id is null
   or reason is null
   or detail is null
   or key_id is null
   or received_at is null
   or replayed_at < received_at
   or raw_encoding <> 'base64'
   or raw_length is distinct from length(raw) + coalesce(rest_length, 0)
   or piece_count <> last_piece
   or (whole_bytes is null and whole_sha256 is not null)
order by ingest_seq;

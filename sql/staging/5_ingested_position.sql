-- One row: the number of the newest segment with a row of ingested_in_scope; null without one.
create or replace view ingested_position as
select max(ingest_seq) >> 32 as segment
from ingested_in_scope;

comment on view ingested_position is 'The newest segment with a row in scope: the position of a live stream.';

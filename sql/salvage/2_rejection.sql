-- Deletes incomplete salvaged rejections, which then count as lost, and pieces without a rejection.
delete from quarantine
where exists (select 1 from missing where ingest_seq >> 32 between missing.first_number and missing.last_number)
  and raw_length <> length(raw) + coalesce((
    select sum(length(rest.raw)) from quarantine_rest as rest where rest.quarantine_id = quarantine.quarantine_id
  ), 0);

delete from quarantine_rest where quarantine_id not in (select quarantine_id from quarantine);

-- Deployments of stored rejections that were replayed in a load.
select distinct deployment from quarantine
where quarantine_id in (select quarantine_id::uuid from line where kind = 'replayed');

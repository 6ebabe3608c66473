-- One row per entry of the audit trail that matches the filters, the newest first, up to `row_limit`.
create view audit_entry_newest as
from audit_entry_in_scope
order by number desc
limit getvariable('row_limit')::bigint;

-- One row per entry of the audit trail in the files of the variable `audit_files`, in the order of the trail. Lines that a
-- crash left incomplete have no row.
create view audit_entry as
select
    number,
    make_timestamp_ms("at") as recorded_at,
    action,
    actor,
    nullif(actor_label, '') as actor_label,
    via,
    client_address,
    target,
    outcome,
    "count" as action_count,
    detail,
    parse_filename(filename, true) as day
from read_json(
    getvariable('audit_files')::varchar[],
    filename = true,
    format = 'newline_delimited',
    ignore_errors = true,
    maximum_object_size = 65536,
    columns = {
        number: 'bigint',
        "at": 'bigint',
        action: 'varchar',
        actor: 'varchar',
        actor_label: 'varchar',
        via: 'varchar',
        client_address: 'varchar',
        target: 'varchar',
        outcome: 'varchar',
        "count": 'bigint',
        detail: 'json'
    }
)
where number is not null;

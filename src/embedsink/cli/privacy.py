"""`embedsink privacy`: show the rules and the retention, compute hashes, and rotate the secret of the hashes."""

from typing import Annotated

import typer

from embedsink.audit.entry import Action
from embedsink.cli.options import DATA, Data, UsageError, examples
from embedsink.cli.output import fail, print_message
from embedsink.cli.recording import recorded
from embedsink.cli.tables import print_table
from embedsink.data_folder import DataFolder, require_folder

app = typer.Typer(help="Show privacy rules, and compute hashes.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("field", "rule", "opted_out")
SETTINGS = (
    *("RETENTION_DAYS", "RETENTION_DAYS_BY_DEPLOYMENT", "DAILY_TOTALS", "ARCHIVE", "DEDUP_DAYS"),
    *("QUESTION_RETENTION_DAYS", "EXTRA_RETENTION_DAYS", "QUARANTINE_RETENTION_DAYS", "AUDIT_DAYS"),
    *("ERASURE_BLOCK_DAYS", "ERASE_ON_SCIM_DELETE"),
)
_FORGETTING = "Erasures and access requests then can't find viewers in earlier hashed events."
_FORGOT = (
    "Warning: erasures and access requests can't find viewers in events that were hashed before the restart. They are "
    "incomplete until the retention has deleted these events (docs/privacy.md)."
)


@app.command(epilog=examples("embedsink privacy show --data data"))
def show(data: Data = DATA) -> None:
    """Print the rule of each field: for most viewers, and for viewers who have opted out. Then print the retention.

    The rules are in the file privacy.toml in the data folder. A running server has the rules of its start. The settings
    are those in the environment of this command: set the same variables as for the server.
    """
    from embedsink.privacy.rules import read_privacy_rules
    from embedsink.settings import PREFIX, read_settings

    settings = read_settings().without_secrets()
    folder = DataFolder(require_folder(data))
    rules = read_privacy_rules(folder.privacy_rules)
    opted_out = rules.of_all_fields(is_opted_out=True)
    print_table(COLUMNS, [[name, str(rule), str(opted_out[name])] for name, rule in rules.of_all_fields().items()])
    typer.echo()
    names = [f"{PREFIX}{name}" for name in SETTINGS]
    opt_out = ("opt_out", "anonymize" if rules.honors_opt_out else "ignore")
    print_table(("setting", "value"), [opt_out, *((name, str(settings[name])) for name in names)])
    if not folder.privacy_rules.exists():
        print_message(f"{folder.privacy_rules} does not exist, so every field is kept (docs/privacy.md).")


@app.command("hash", epilog=examples("embedsink privacy hash viewer ann@example.com --data data"))
def print_hashes(
    field: Annotated[str, typer.Argument(metavar="FIELD", help="The field, such as viewer.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The value as the host page sends it.")],
    data: Data = DATA,
) -> None:
    """Print the hashes of a value, so that you can find it in reports: that of the present secret first.

    There is one hash for each secret that the data folder has.
    """
    from embedsink.audit.changes import secret_file_of
    from embedsink.errors import suggestion
    from embedsink.privacy.hashing import hash_text
    from embedsink.privacy.rules import FIELDS

    if field not in FIELDS:
        raise UsageError(f'FIELD: "{field}" is not a field. {suggestion(field, FIELDS)}')
    folder = DataFolder(require_folder(data))
    secrets = secret_file_of(folder).read()
    if not secrets:
        fail(f"{folder.privacy_secrets}: does not exist. The first start with a rule that hashes creates it.")
    for secret in secrets:
        typer.echo(hash_text(field, text, secret))


@app.command(
    "rotate-secret",
    epilog=examples(
        "embedsink privacy rotate-secret --data data", "embedsink privacy rotate-secret --forget-former --data data"
    ),
)
def rotate_secret(
    forget_former: Annotated[
        bool,
        typer.Option("--forget-former", help=f"Delete the former secrets. {_FORGETTING}"),
    ] = False,
    data: Data = DATA,
) -> None:
    """Create a new secret for hashes. After a restart of the server, new events have other hashes than earlier ones.

    So each viewer counts as a new one. The former secrets remain, so that a person is found in earlier events.
    --forget-former deletes them without confirmation, also the present one. First finish all erasures and access
    requests. Later ones are incomplete until the retention has deleted the earlier events.
    """
    from embedsink.audit.changes import secret_file_of

    folder = DataFolder(require_folder(data))
    detail = {"forgets_former": forget_former}
    with recorded(folder, Action.SETTINGS_CHANGED, target=folder.privacy_secrets.name, detail=detail):
        secrets = secret_file_of(folder).rotate(keeps_former=not forget_former)
    secret_count = "one secret" if len(secrets) == 1 else f"{len(secrets)} secrets"
    print_message(f"{folder.privacy_secrets}: has {secret_count} now. Restart the server to use the new one.")
    if forget_former:
        print_message(_FORGOT)

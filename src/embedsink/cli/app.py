"""The commands of `embedsink`. They import slow modules in their functions, so that `--help` is fast."""

from typing import Annotated

import typer

from embedsink import __version__
from embedsink.cli import (
    audit,
    backup,
    erase,
    inspect,
    keys,
    maintenance,
    privacy,
    quarantine,
    render,
    reports,
    server,
    sync_result,
    transfer,
)
from embedsink.cli.options import examples
from embedsink.cli.output import FAILED, USAGE_ERROR, fail
from embedsink.errors import EmbedsinkError, Refused
from embedsink.reasons import Reason

# Error messages about these parameters of the HTTP API get the `--` of the option with the same name.
PARAMETERS_WITH_OPTION = (
    *(
        "since",
        "until",
        "surface",
        "deployment",
        "tenant",
        "vendor",
        "internal",
        "interval",
        "timezone",
        "by",
        "department",
        "group",
    ),
    *("columns", "limit", "period", "before", "reason", "action", "actor"),
)
SUMMARY = "Store the events of embedded analytics durably, and report on them."

app = typer.Typer(
    name="embedsink",
    help=SUMMARY,
    epilog=examples(
        "embedsink demo",
        "embedsink serve --data data",
        "embedsink keys create --kind ingest --data data",
        "embedsink report views --since 2026-11-01",
    ),
    no_args_is_help=True,
    add_completion=False,
    # Plain help and errors: rich would double the time of `--help`, and its traceback hides the cause.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(short_help="Receive events and serve reports.", epilog=server.SERVE_EXAMPLES)(server.serve)
app.command(short_help="Run a demonstration with generated traffic.", epilog=server.DEMO_EXAMPLES)(server.demo)
app.add_typer(keys.app, name="keys")
app.command(short_help="List reports, or show one.", epilog=reports.EXAMPLES)(reports.report)
app.command(short_help="Draw a dashboard as a PDF, PNG, SVG or HTML file.", epilog=render.EXAMPLES)(render.render)
app.command(short_help="Count the events of a session, for tests.", epilog=inspect.EXAMPLES)(inspect.inspect)
app.command("export", short_help="Write all raw events to a file.", epilog=transfer.EXPORT_EXAMPLES)(
    transfer.export_file
)
app.command("import", short_help="Import events from a file.", epilog=transfer.IMPORT_EXAMPLES)(transfer.import_file)
app.command("sync-result", short_help="Record the result of a dbt sync.", epilog=sync_result.EXAMPLES)(
    sync_result.sync_result
)
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(privacy.app, name="privacy")
app.command(short_help="Erase a person, with a certificate.", epilog=erase.EXAMPLES)(erase.erase)
app.command(short_help="Back up a data folder, even while a server runs.", epilog=backup.BACKUP_EXAMPLES)(backup.backup)
app.command(short_help="Restore a backup into a new folder.", epilog=backup.RESTORE_EXAMPLES)(backup.restore)
app.command(short_help="Show who did what.", epilog=audit.EXAMPLES)(audit.audit)
app.command(short_help="Publish a snapshot, analytics.duckdb.", epilog=maintenance.SNAPSHOT_EXAMPLES)(
    maintenance.snapshot
)
app.command(short_help="Rebuild the store.", epilog=maintenance.REBUILD_EXAMPLES)(maintenance.rebuild)
app.command(short_help="Check a data folder.", epilog=maintenance.DOCTOR_EXAMPLES)(maintenance.doctor)


def _print_version_and_exit(is_requested: bool) -> None:
    """Print the version and exit if `--version` was given."""
    if is_requested:
        typer.echo(f"embedsink {__version__}")
        raise typer.Exit


@app.callback(help=SUMMARY)
def embedsink(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version_and_exit),
    ] = False,
) -> None:
    """Declare the options that precede the command. The callback of an option runs before this function."""


def main() -> None:
    """Run the command line. The exit code is 0 for success, 1 for a failure and 2 for a usage error."""
    try:
        app()
    except Refused as error:
        is_usage_error = error.reason in (Reason.BAD_PARAMETER, Reason.NOT_FOUND)
        fail(_message_of(error), code=USAGE_ERROR if is_usage_error else FAILED)
    except EmbedsinkError as error:
        fail(error, code=FAILED)


def _message_of(error: Refused) -> str:
    """Return the message of an error, with `--` before the parameter if an option has the same name."""
    message = str(error)
    parameter, _, _ = message.partition(":")
    if error.reason is Reason.BAD_PARAMETER and parameter in PARAMETERS_WITH_OPTION:
        return f"--{message}"
    return message

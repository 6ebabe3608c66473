"""The command `embedsink`: one module a noun. Heavy modules are imported in the commands, so that `--help` is quick."""

from typing import Annotated

import typer

from embedsink import __version__
from embedsink.cli import backup, inspect, keys, maintenance, quarantine, render, reports, server, sync_result, transfer
from embedsink.cli.options import examples
from embedsink.cli.output import FAILED, WRONG_USE, fail
from embedsink.errors import EmbedsinkError
from embedsink.reasons import Reason

app = typer.Typer(
    name="embedsink",
    help="Keeps every event of embedded analytics, durably, and answers questions about them.",
    epilog=examples(
        "embedsink demo",
        "embedsink serve --data data",
        "embedsink keys create --kind ingest --data data",
        "embedsink report views --since 2026-11-01",
    ),
    no_args_is_help=True,
    add_completion=False,
    # Plain help and plain errors: rich would double the time of `--help`, and a traceback of its own hides the cause.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command(short_help="Receive events and answer reports.", epilog=server.SERVE_EXAMPLES)(server.serve)
app.command(short_help="Show it at work, with made-up traffic.", epilog=server.DEMO_EXAMPLES)(server.demo)
app.add_typer(keys.app, name="keys")
app.command(short_help="Show a report, or which there are.", epilog=reports.EXAMPLES)(reports.report)
app.command(short_help="Draw a dashboard as a PDF, PNG, SVG or HTML file.", epilog=render.EXAMPLES)(render.render)
app.command(short_help="Show what arrived of one session, for tests.", epilog=inspect.EXAMPLES)(inspect.inspect)
app.command("export", short_help="Write all raw events to a file.", epilog=transfer.EXPORT_EXAMPLES)(
    transfer.export_file
)
app.command("import", short_help="Take in the events of a file.", epilog=transfer.IMPORT_EXAMPLES)(transfer.import_file)
app.command("sync-result", short_help="Record what a dbt sync came to.", epilog=sync_result.EXAMPLES)(
    sync_result.sync_result
)
app.add_typer(quarantine.app, name="quarantine")
app.command(short_help="Back up a data folder, also while a server runs.", epilog=backup.BACKUP_EXAMPLES)(backup.backup)
app.command(short_help="Restore a backup into a new folder.", epilog=backup.RESTORE_EXAMPLES)(backup.restore)
app.command(short_help="Publish analytics.duckdb anew.", epilog=maintenance.SNAPSHOT_EXAMPLES)(maintenance.snapshot)
app.command(short_help="Rebuild the store.", epilog=maintenance.REBUILD_EXAMPLES)(maintenance.rebuild)
app.command(short_help="Check a data folder.", epilog=maintenance.DOCTOR_EXAMPLES)(maintenance.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"embedsink {__version__}")
        raise typer.Exit


@app.callback()
def embedsink(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Keeps every event of embedded analytics, durably, and answers questions about them."""


def main() -> None:
    """Run the command line. Exit codes: 0, 1 for a failure, 2 for wrong use."""
    try:
        app()
    except EmbedsinkError as error:
        is_wrong_use = getattr(error, "reason", None) in (Reason.BAD_PARAMETER, Reason.NOT_FOUND)
        fail(error, code=WRONG_USE if is_wrong_use else FAILED)

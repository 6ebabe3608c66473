"""`embedsink keys`: create, list and revoke. A running server takes changes up within a second."""

import getpass
import sys
import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.parsing import normalize_origin, parse_deployment, parse_duration, parse_label
from embedsink.auth.tokens import TOKEN_START
from embedsink.cli.options import DATA, Data, checked, examples
from embedsink.cli.output import say, show_table
from embedsink.data_folder import DataFolder

app = typer.Typer(help="Create, list and revoke keys.", no_args_is_help=True, rich_markup_mode=None)

_STDIN_BYTES_MAX = 4_096

COLUMNS = ("key_id", "kind", "state", "deployments", "origins", "created_at", "expires_at", "label")


@app.command(
    epilog=examples(
        "embedsink keys create --kind ingest --origin https://app.example.com --data data",
        "embedsink keys create --kind read --deployment 12 --deployment 13 --expires 90d --label 'the BI team'",
        "embedsink keys create --kind sync --deployment 12 --label 'the dbt pipeline'",
        "EMBEDSINK_KEY=$(embedsink keys create --kind admin)",
    )
)
def create(
    kind: Annotated[KeyKind, typer.Option(help="Who holds it: a page, a reader, a dbt pipeline, the operator.")],
    deployment: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="Good for this deployment alone. Repeatable; all when not told.",
            parser=checked(parse_deployment),
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Good for pages of this origin alone. Repeatable; not for sync keys.",
            parser=checked(normalize_origin),
        ),
    ] = None,
    expires: Annotated[
        int | None,
        typer.Option(metavar="SPAN", help="Ends after this time, such as 90d or 12h.", parser=checked(parse_duration)),
    ] = None,
    label: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.", parser=checked(parse_label))] = "",
    data: Data = DATA,
) -> None:
    """Create a key and print it, alone, on stdout. It is shown once: only its SHA-256 is kept."""
    if kind is KeyKind.SYNC and origin:
        raise typer.BadParameter("--origin: a sync key belongs to a pipeline, not to pages. Leave it out.")
    folder, now = DataFolder(data), time.time()
    folder.create()
    key, token = KeyStore(folder.keys).create(
        kind,
        deployments=deployment or None,
        origins=origin or (),
        expires_at=None if expires is None else now + expires,
        label=label,
        now=now,
    )
    say(f"{key.key_id}: a key to {_purpose(key)}. Keep it safe: it is not shown again.")
    if key.kind is KeyKind.INGEST and key.origins:
        # Whole where a person can copy it. Elsewhere the key is stdout's alone: stderr may end up in a log.
        say(_element(token if sys.stdout.isatty() else "THE-KEY-ON-STDOUT"))
    typer.echo(token)


@app.command("list", epilog=examples("embedsink keys list --data data"))
def list_keys(data: Data = DATA) -> None:
    """List all keys, with those that ended in the last 400 days. Only their owners have the tokens."""
    keys, now = KeyStore(DataFolder(data).keys).keys(), time.time()
    if not keys:
        say(f"{data}: has no keys yet. `embedsink keys create --kind ingest` makes one.")
        return
    show_table(COLUMNS, [_row(key, now) for key in keys])


@app.command(
    epilog=examples("embedsink keys revoke k_0123456789ab --data data", "embedsink keys revoke - --data data < key.txt")
)
def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="KEY_ID", help="As `keys list` shows it; - reads the key itself from stdin.")
    ],
    data: Data = DATA,
) -> None:
    """End a key. A running server refuses it within a second."""
    if TOKEN_START.search(key_id):
        shown = "is a key. A command line shows in `ps` and in the shell's history"
        raise typer.BadParameter(f"KEY_ID {shown}. Give the id that `keys list` shows, or - and the key on stdin.")
    key = KeyStore(DataFolder(data).keys).revoke(_read_token() if key_id == "-" else key_id, now=time.time())
    say(f"{key.key_id}: is revoked.")


def _read_token() -> str:
    """Return the key on stdin; a terminal does not show what is typed.

    Raises:
        typer.BadParameter: stdin holds no text.
    """
    if sys.stdin.isatty():
        token = getpass.getpass("Key: ")
    else:
        token = sys.stdin.buffer.read(_STDIN_BYTES_MAX).decode("utf-8", "replace")
    if not token.strip():
        raise typer.BadParameter("stdin: is empty. Write the key to it, alone: `embedsink keys revoke - < key.txt`.")
    return token.strip()


def _purpose(key: Key) -> str:
    verb = {
        KeyKind.INGEST: "send events",
        KeyKind.READ: "read reports",
        KeyKind.SYNC: "record dbt syncs",
        KeyKind.ADMIN: "administrate",
    }[key.kind]
    return verb if key.deployments is None else f"{verb} of deployment {_listed(sorted(key.deployments))}"


def _element(token: str) -> str:
    """The element that loads the forwarder, by the name that stays valid after an upgrade (docs/browser.md)."""
    # Here, since nothing else of these commands wants it.
    from embedsink.settings import read_settings

    word = read_settings().service_name
    service_name = "" if word == "svc" else f' data-service-name="{word}"'
    return (
        "For the page, before the iframe, with the origins of your server and of the embed:\n"
        '<script type="module" src="https://YOUR-SERVER/forwarder.js" '
        f'data-key="{token}" data-origin="https://YOUR-EMBED"{service_name}></script>'
    )


def _row(key: Key, now: float) -> tuple[object, ...]:
    state = "revoked" if key.revoked_at is not None else "live" if key.is_live(now) else "expired"
    deployments = "all" if key.deployments is None else _listed(sorted(key.deployments))
    origins = _listed(sorted(key.origins)) or "any"
    return key.key_id, key.kind, state, deployments, origins, _day(key.created_at), _day(key.expires_at), key.label


def _listed(parts: list[int] | list[str]) -> str:
    return ", ".join(map(str, parts))


def _day(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(" ", timespec="minutes")[:16]

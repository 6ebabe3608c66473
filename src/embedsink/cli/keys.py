"""`embedsink keys`: create, list and revoke. A running server applies changes within a second."""

import getpass
import sys
import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.parsing import normalize_origin, parse_deployment, parse_duration, parse_label
from embedsink.auth.tokens import TOKEN_PREFIX
from embedsink.cli.options import DATA, Data, WrongUse, examples, parser
from embedsink.cli.output import print_message
from embedsink.cli.tables import print_table
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
    kind: Annotated[KeyKind, typer.Option(help="Who uses the key: pages, readers, dbt pipelines, or operators.")],
    deployment: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            help="Allow this deployment only. Repeatable. Default: all.",
            parser=parser("--deployment", parse_deployment),
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Allow pages of this origin only. Repeatable. Not for sync keys.",
            parser=parser("--origin", normalize_origin),
        ),
    ] = None,
    expires: Annotated[
        int | None,
        typer.Option(
            metavar="SPAN",
            help="Expire after this time, such as 90d or 12h.",
            parser=parser("--expires", parse_duration),
        ),
    ] = None,
    label: Annotated[
        str, typer.Option(metavar="TEXT", help="A note on its use.", parser=parser("--label", parse_label))
    ] = "",
    data: Data = DATA,
) -> None:
    """Create a key, and print it on stdout. It is shown only once, since only its SHA-256 is stored."""
    if kind is KeyKind.SYNC and origin:
        raise WrongUse("--origin: does not apply to sync keys, which pipelines use. Omit it.")
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
    print_message(f"{key.key_id}: a key to {_purpose(key)}. Store it safely: it is not shown again.")
    if key.kind is KeyKind.INGEST and key.origins:
        # Only a terminal shows the tag with the key: otherwise stderr may be a log.
        print_message(_script_tag(token if sys.stdout.isatty() else "THE-KEY-ON-STDOUT"))
    typer.echo(token)


@app.command("list", epilog=examples("embedsink keys list --data data"))
def list_keys(data: Data = DATA) -> None:
    """List all keys. Expired and revoked ones are listed for 400 days."""
    keys, now = KeyStore(DataFolder(data).keys).keys(), time.time()
    if not keys:
        print_message(f"{data}: no keys. Create one: `embedsink keys create --kind ingest --data {data}`.")
        return
    print_table(COLUMNS, [_row(key, now) for key in keys])


@app.command(
    epilog=examples("embedsink keys revoke k_0123456789ab --data data", "embedsink keys revoke - --data data < key.txt")
)
def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="KEY_ID", help="An id of `keys list`, or - to read the key itself from stdin.")
    ],
    data: Data = DATA,
) -> None:
    """Revoke a key. A running server refuses it within a second."""
    if TOKEN_PREFIX.search(key_id):
        raise WrongUse(
            "KEY_ID: is a key, which `ps` and the shell's history would show. Pass an id of `keys list`, or - and the "
            "key on stdin."
        )
    key = KeyStore(DataFolder(data).keys).revoke(_read_token() if key_id == "-" else key_id, now=time.time())
    print_message(f"{key.key_id}: revoked.")


def _read_token() -> str:
    """Read a key from stdin. A terminal does not echo it."""
    if sys.stdin.isatty():
        token = getpass.getpass("Key: ")
    else:
        token = sys.stdin.buffer.read(_STDIN_BYTES_MAX).decode("utf-8", "replace")
    if not token.strip():
        raise WrongUse("stdin: is empty. Pass the key: `embedsink keys revoke - < key.txt`.")
    return token.strip()


def _purpose(key: Key) -> str:
    verb = {
        KeyKind.INGEST: "send events",
        KeyKind.READ: "read reports",
        KeyKind.SYNC: "record dbt syncs",
        KeyKind.ADMIN: "administrate",
    }[key.kind]
    return verb if key.deployments is None else f"{verb} of deployment {_joined(sorted(key.deployments))}"


def _script_tag(token: str) -> str:
    """Return the script tag of the forwarder, with the URL that stays valid after upgrades (docs/browser.md)."""
    from embedsink.settings import read_settings

    name = read_settings().service_name
    service_name = "" if name == "svc" else f' data-service-name="{name}"'
    return (
        "Add this tag to the page before the iframe. Replace the origins of your server and of the embed.\n"
        '<script type="module" src="https://YOUR-SERVER/forwarder.js" '
        f'data-key="{token}" data-origin="https://YOUR-EMBED"{service_name}></script>'
    )


def _row(key: Key, now: float) -> tuple[object, ...]:
    state = "revoked" if key.revoked_at is not None else "live" if key.is_live(now) else "expired"
    deployments = "all" if key.deployments is None else _joined(sorted(key.deployments))
    origins = _joined(sorted(key.origins)) or "any"
    return (
        key.key_id,
        key.kind,
        state,
        deployments,
        origins,
        _minute(key.created_at),
        _minute(key.expires_at),
        key.label,
    )


def _joined(parts: list[int] | list[str]) -> str:
    return ", ".join(map(str, parts))


def _minute(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(" ", timespec="minutes")[:16]

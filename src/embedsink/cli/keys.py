"""`embedsink keys`: create, list and revoke. A running server applies changes within a second."""

import getpass
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated

import typer

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.parsing import normalize_origin, parse_deployment, parse_duration, parse_label, parse_tenant
from embedsink.auth.tokens import TOKEN_PREFIX
from embedsink.cli.options import DATA, Data, UsageError, examples, option_parser
from embedsink.cli.output import print_message
from embedsink.cli.recording import recording_key_store
from embedsink.cli.tables import print_table
from embedsink.data_folder import DataFolder

app = typer.Typer(help="Create, list and revoke keys.", no_args_is_help=True, rich_markup_mode=None)

_STDIN_BYTES_MAX = 4_096

COLUMNS = ("key_id", "kind", "state", "deployments", "tenants", "names", "origins", "created_at", "expires_at", "label")

Kind = Annotated[
    KeyKind,
    typer.Option(
        help="The kind of key: ingest for pages, read for readers, sync for dbt pipelines, admin for operators."
    ),
]
AllowedDeployments = Annotated[
    list[int] | None,
    typer.Option(
        "--deployment",
        metavar="N",
        help="Allow this deployment only. Repeatable. Default: all.",
        parser=option_parser("--deployment", parse_deployment),
    ),
]
AllowedTenants = Annotated[
    list[str] | None,
    typer.Option(
        "--tenant",
        metavar="NAME",
        help="Allow this tenant only. Repeatable. Default: all.",
        parser=option_parser("--tenant", parse_tenant),
    ),
]
Names = Annotated[
    bool, typer.Option("--names", help="Show the names of people in reports. For read keys; admin keys always do.")
]
AllowedOrigins = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        metavar="URL",
        help="Allow pages of this origin only. Repeatable. Not for sync keys.",
        parser=option_parser("--origin", normalize_origin),
    ),
]
Lifetime = Annotated[
    int | None,
    typer.Option(
        "--expires",
        metavar="SPAN",
        help="The lifetime of the key, such as 90d or 12h. Default: unlimited.",
        parser=option_parser("--expires", parse_duration),
    ),
]
Label = Annotated[
    str, typer.Option(metavar="TEXT", help="A description of the key.", parser=option_parser("--label", parse_label))
]


@app.command(
    epilog=examples(
        "embedsink keys create --kind ingest --origin https://app.example.com --data data",
        "embedsink keys create --kind read --deployment 12 --deployment 13 --expires 90d --label 'the BI team'",
        "embedsink keys create --kind read --tenant acme --label 'the customer acme'",
        "embedsink keys create --kind sync --deployment 12 --label 'the dbt pipeline'",
        "EMBEDSINK_KEY=$(embedsink keys create --kind admin)",
    )
)
def create(
    kind: Kind,
    deployments: AllowedDeployments = None,
    tenants: AllowedTenants = None,
    names: Names = False,
    origins: AllowedOrigins = None,
    lifetime_s: Lifetime = None,
    label: Label = "",
    data: Data = DATA,
) -> None:
    """Create a key, and print it on stdout. It is shown only once, because only its SHA-256 is stored."""
    if kind is KeyKind.SYNC and origins:
        raise UsageError("--origin: does not apply to sync keys, which pipelines use. Omit it.")
    if kind is KeyKind.SCIM and (deployments or tenants or origins):
        raise UsageError("--deployment, --tenant, --origin: do not apply to scim keys. Omit them.")
    if names and kind is not KeyKind.READ:
        raise UsageError("--names: applies to read keys only. Admin keys always show names. Omit it.")
    now = time.time()
    folder = DataFolder(data)
    folder.create()
    key, token = recording_key_store(folder).create(
        kind,
        deployments=deployments or None,  # Some versions of Typer give an empty list.
        tenants=tenants or None,
        shows_names=names,
        origins=origins or (),
        expires_at=None if lifetime_s is None else now + lifetime_s,
        label=label,
        now=now,
    )
    print_message(f"{key.key_id}: a key to {_purpose(key)}. Store it safely: it is not shown again.")
    if key.kind is KeyKind.INGEST and key.origins is not None:
        # Add the key to the tag only on a terminal that shows the key anyway. Otherwise stderr may be a log.
        is_terminal = sys.stdout.isatty() and sys.stderr.isatty()
        print_message(_script_tags_advice(token if is_terminal else "THE-KEY-ON-STDOUT"))
    typer.echo(token)


@app.command("list", epilog=examples("embedsink keys list --data data"))
def list_keys(data: Data = DATA) -> None:
    """List all keys. Expired and revoked ones are listed for 400 days."""
    keys = KeyStore(DataFolder(data).keys).keys()
    if not keys:
        print_message(f"{data}: no keys. Create one: `embedsink keys create --kind ingest --data {data}`.")
        return
    now = time.time()
    print_table(COLUMNS, [_key_row(key, now) for key in keys])


@app.command(
    epilog=examples("embedsink keys revoke k_0123456789ab --data data", "embedsink keys revoke - --data data < key.txt")
)
def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="KEY_ID", help="A key id from `keys list`, or - to read the key itself from stdin.")
    ],
    data: Data = DATA,
) -> None:
    """Revoke a key. A running server refuses it within a second."""
    if TOKEN_PREFIX.search(key_id):
        raise UsageError(
            "KEY_ID: is a key, which `ps` and the shell's history would show. Pass a key id from `keys list`, or - "
            "and the key on stdin."
        )
    id_or_token = _read_token() if key_id == "-" else key_id
    key = recording_key_store(DataFolder(data)).revoke(id_or_token, now=time.time())
    print_message(f"{key.key_id}: revoked.")


def _read_token() -> str:
    """Read a key from stdin, or ask for a key on a terminal without echoing it.

    Raises:
        UsageError: stdin is empty.
    """
    if sys.stdin.isatty():
        token = getpass.getpass("Key: ")
    else:
        token = sys.stdin.buffer.read(_STDIN_BYTES_MAX).decode("utf-8", "replace")
    if not token.strip():
        raise UsageError("stdin: is empty. Pass the key: `embedsink keys revoke - < key.txt`.")
    return token.strip()


def _purpose(key: Key) -> str:
    """Return the purpose of a key as a phrase, such as `send events for deployment 12`."""
    purpose = {
        KeyKind.INGEST: "send events",
        KeyKind.READ: "read reports",
        KeyKind.SYNC: "record dbt syncs",
        KeyKind.SCIM: "provision the directory",
        KeyKind.ADMIN: "administer the server",
    }[key.kind]
    limits = [
        f"{noun if len(values) == 1 else f'{noun}s'} {_comma_separated(values)}"
        for noun, values in (("deployment", key.scope.deployments), ("tenant", key.scope.tenants))
        if values is not None
    ]
    names = " with names" if key.kind is KeyKind.READ and key.shows_names else ""
    return f"{purpose}{names} for {' and '.join(limits)}" if limits else f"{purpose}{names}"


def _script_tags_advice(token: str) -> str:
    """Return the advice to add the forwarder's script tags to a page (docs/browser.md)."""
    from embedsink.settings import read_settings

    service_name = read_settings().service_name
    # `svc` is also the default of the forwarder.
    service_attribute = "" if service_name == "svc" else f' data-service-name="{service_name}"'
    return (
        "Add these tags to the page before the iframe. Replace YOUR-SERVER and YOUR-EMBED with your hosts.\n"
        # It keeps the messages that arrive before the module runs.
        '<script>embedsink=[];addEventListener("message",e=>embedsink[98]||embedsink.push(e))</script>\n'
        # This URL without a version stays valid after upgrades.
        '<script type="module" src="https://YOUR-SERVER/forwarder.js" '
        f'data-key="{token}" data-origin="https://YOUR-EMBED"{service_attribute}></script>'
    )


def _key_row(key: Key, now: float) -> tuple[object, ...]:
    """Return the table row of a key."""
    return (
        key.key_id,
        key.kind,
        _key_state(key, now),
        "all" if key.scope.deployments is None else _comma_separated(key.scope.deployments),
        "all" if key.scope.tenants is None else _comma_separated(key.scope.tenants),
        "shown" if key.shows_names else "hidden",
        "any" if key.origins is None else _comma_separated(key.origins),
        _format_time(key.created_at),
        "" if key.expires_at is None else _format_time(key.expires_at),
        key.label,
    )


def _key_state(key: Key, now: float) -> str:
    """Return whether a key is live, expired or revoked. A revoked key may also be expired."""
    if key.revoked_at is not None:
        return "revoked"
    return "live" if key.is_live(now) else "expired"


def _comma_separated(values: Iterable[int] | Iterable[str]) -> str:
    """Return values as text, sorted and separated by commas."""
    return ", ".join(str(value) for value in sorted(values))


def _format_time(epoch_s: float) -> str:
    """Return a time in UTC, such as `2026-11-23 09:30`."""
    return f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%d %H:%M}"

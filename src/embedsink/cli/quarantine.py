"""`embedsink quarantine`: list, show, replay and purge rejections."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from embedsink.audit.entry import Action
from embedsink.cli.options import (
    DATA,
    Data,
    KeyOption,
    Url,
    as_of_phrase,
    connect,
    examples,
    source_option,
    suggesting_url,
    when_new_data_appears,
)
from embedsink.cli.output import fail, print_json, print_message
from embedsink.cli.recording import recorded
from embedsink.cli.tables import print_table
from embedsink.data_folder import require_folder

app = typer.Typer(help="List, show, replay and purge rejections.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("quarantine_id", "received_at", "deployment", "reason", "detail", "replayed_at")
# The maximum of `/api/v1/quarantine`.
LIMIT_MAX = 1_000


@app.command("list", epilog=examples("embedsink quarantine list --data data", "embedsink quarantine list --limit 10"))
def list_quarantine(
    limit: Annotated[int, typer.Option(metavar="N", help="List the newest N.", min=1, max=LIMIT_MAX)] = 100,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """List the newest rejections with their times, reasons and details.

    For a data folder, the command lists the rejections in the last snapshot.
    """
    rows = _read_rows(data, url, key, limit)
    as_of = as_of_phrase(data, url)
    note = f"New rejections appear {when_new_data_appears(url)}."
    if not rows:
        print_message(f"The quarantine is empty {as_of}. {note}")
        return
    print_table(COLUMNS, [[row.get(name) for name in COLUMNS] for row in rows])
    can_raise_limit = len(rows) == limit and limit < LIMIT_MAX
    advice = " Raise --limit to list more." if can_raise_limit else ""
    noun = "rejection" if len(rows) == 1 else "rejections"
    print_message(f"{len(rows):,} {noun} {as_of}, newest first.{advice} {note}")
    source = source_option(data, url)
    print_message(f"Show one in full: `embedsink quarantine show ID {source}`.")
    print_message(f"After a change of settings or an upgrade, replay them: `embedsink quarantine replay {source}`.")


@app.command(epilog=examples("embedsink quarantine show 019ab9f0-6a00-7c4e-8000-000000000000 --data data"))
def show(
    quarantine_id: Annotated[
        str, typer.Argument(metavar="ID", help="An id from `quarantine list`, or its first characters.")
    ],
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Show one of the newest rejections in full, as JSON. `raw` is the rejected text."""
    rows = _read_rows(data, url, key, LIMIT_MAX)
    ids = [str(row["quarantine_id"]) for row in rows if str(row["quarantine_id"]).startswith(quarantine_id)]
    if len(ids) != 1:
        problem = "does not exist among" if not ids else f"matches {len(ids)} of"
        command = f"embedsink quarantine list --limit {LIMIT_MAX} {source_option(data, url)}"
        fail(f"quarantine {quarantine_id}: {problem} the newest {LIMIT_MAX:,} rejections. List them: `{command}`.")
    # The list shortens long texts. A request for one id does not.
    [row] = _read_rows(data, url, key, 1, quarantine_id=ids[0])
    print_json(row)


@app.command(
    epilog=examples(
        "embedsink quarantine replay --data data",
        "EMBEDSINK_KEY=es_admin_… embedsink quarantine replay --url https://events.example.com",
    )
)
def replay(data: Data = DATA, url: Url = None, key: KeyOption = None) -> None:
    """Validate all rejections again, after an upgrade or a change of settings.

    Use --data while no server has the folder open. Otherwise use --url and an admin key.
    """
    if url is not None:
        members = ("replayed", "rejected", "untried")
        result = connect(url, key).post("quarantine", "replay", required_members=members)
    else:
        with suggesting_url():
            result = asyncio.run(_replay_in_folder(require_folder(data)))
    print_message(f"replayed {result['replayed']:,}, still rejected {result['rejected']:,}.")
    untried_count = result["untried"]
    if untried_count:
        print_message(
            f"Rejections not replayed: {untried_count:,}. A rejection with the reason `id_conflict` or `out_of_scope` "
            "never becomes valid: send its event again with another id or key. A rejection that is stored only in part "
            "can't be replayed."
        )


@app.command(
    epilog=examples(
        "embedsink quarantine purge --data data",
        "embedsink quarantine purge --before 7d --reason not_json",
        "EMBEDSINK_KEY=es_admin_… embedsink quarantine purge --url https://events.example.com --key-id k_0123456789ab",
    )
)
def purge(
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only rejections received before this time, such as 7d.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="REASON", help="Only rejections with this reason.")] = None,
    key_id: Annotated[
        str | None, typer.Option(metavar="KEY_ID", help="Only rejections of this key, by its id in `keys list`.")
    ] = None,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Delete rejections without confirmation. The report `rejections` keeps their counts.

    Use --data while no server has the folder open. Otherwise use --url and an admin key.
    """
    if url is not None:
        query = {"before": before, "reason": reason, "key": key_id}
        purged_count = connect(url, key).delete("quarantine", required_members=("purged",), query=query)["purged"]
    else:
        with suggesting_url():
            folder = require_folder(data)
            purged_count = asyncio.run(_purge_in_folder(folder, before=before, reason=reason, key_id=key_id))
    print_message(f"purged {purged_count:,}.")


async def _purge_in_folder(folder: Path, *, before: str | None, reason: str | None, key_id: str | None) -> int:
    """Delete the rejections of a data folder that match all filters. Return the number of deleted rejections."""
    from embedsink.data_folder import DataFolder
    from embedsink.engine import Engine
    from embedsink.settings import read_settings
    from embedsink.transfer.quarantine import purge as purge_quarantine
    from embedsink.transfer.quarantine import purge_filter

    parsed_filter = purge_filter(before=before, reason=reason, key_id=key_id)
    conditions = {"before": before, "reason": reason, "key": key_id}
    detail = {name: value for name, value in conditions.items() if value is not None}
    async with Engine(DataFolder(folder), read_settings()) as engine:
        with recorded(engine.folder, Action.PURGE, target="quarantine", detail=detail):
            return await purge_quarantine(engine, parsed_filter)


def _read_rows(
    data: Path, url: str | None, key: str | None, limit: int, *, quarantine_id: str | None = None
) -> list[dict[str, Any]]:
    """Return the newest rejections of a server, or of the last snapshot of a data folder if there is no URL.

    Args:
        data: the data folder.
        url: the server.
        key: a key of the server.
        limit: the maximum number of rejections.
        quarantine_id: the id of the only rejection to return.
    """
    if url is not None:
        return connect(url, key).get_rows(
            "quarantine", required_members=COLUMNS, query={"limit": limit, "id": quarantine_id}
        )
    from uuid import UUID

    from embedsink.data_folder import DataFolder
    from embedsink.key_scope import EVERYTHING
    from embedsink.store.snapshot_reader import open_snapshot
    from embedsink.transfer.quarantine import rejections_json

    with open_snapshot(DataFolder(data).snapshot, EVERYTHING.variables()) as reader:
        content = rejections_json(reader, limit=limit, quarantine_id=UUID(quarantine_id) if quarantine_id else None)
    rows: list[dict[str, Any]] = json.loads(content)
    return rows


async def _replay_in_folder(folder: Path) -> dict[str, int]:
    """Replay the rejections of a data folder. Return the counts `replayed`, `rejected` and `untried`.

    Exit with an error message if a replayed event could not be loaded.
    """
    from dataclasses import asdict

    from embedsink.data_folder import DataFolder
    from embedsink.engine import Engine
    from embedsink.settings import read_settings
    from embedsink.transfer.quarantine import replay as replay_quarantine

    async with Engine(DataFolder(folder), read_settings()) as engine:
        with recorded(engine.folder, Action.REPLAY, target="quarantine"):
            result = await replay_quarantine(engine)
    # Closing the engine loads the rest of the journal, so all loading errors are known only now.
    if engine.loader.status.error:
        fail(f"{engine.loader.status.error} The journal has the replayed events; `embedsink serve` loads them.")
    return asdict(result)

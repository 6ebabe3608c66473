"""`embedsink quarantine`: what was rejected and why, trying it again, and purging it."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from embedsink.cli.options import (
    DATA,
    Data,
    KeyOption,
    Url,
    as_of,
    examples,
    existing,
    or_through_a_server,
    same_place,
    server_at,
)
from embedsink.cli.output import fail, say, show_table, strip_control

app = typer.Typer(
    help="Look at what was rejected, try it again, purge it.", no_args_is_help=True, rich_markup_mode=None
)

LISTED = ("quarantine_id", "received_at", "deployment", "reason", "detail", "replayed_at")
# As many as `/api/v1/quarantine` gives at once.
LIMIT_MAX = 1_000


@app.command("list", epilog=examples("embedsink quarantine list --data data", "embedsink quarantine list --limit 10"))
def list_quarantine(
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many, the newest.", min=1, max=LIMIT_MAX)] = 100,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """List the newest kept rejections: when, why, and what was wrong.

    Of a data folder it lists those in the last snapshot, and says of when that is.
    """
    rows = _rows(data, url, key, limit)
    if rows:
        show_table(LISTED, [[row.get(name) for name in LISTED] for row in rows])
    when, later = as_of(data, url)
    if not rows:
        say(f"The quarantine is empty as of {when}. What is rejected shows {later}.")
        return
    newest = f"the newest {limit:,}, more with --limit" if len(rows) == limit < LIMIT_MAX else "the newest first"
    where = same_place(data, url)
    say(f"{len(rows):,} rejected as of {when}, {newest}. What is rejected later shows {later}.")
    say(f"One of them whole: `embedsink quarantine show ID {where}`.")
    say(f"Once settings or the program have changed, try all again: `embedsink quarantine replay {where}`.")


@app.command(epilog=examples("embedsink quarantine show 019ab9f0-6a00-7c4e-8000-000000000000 --data data"))
def show(
    quarantine_id: Annotated[
        str, typer.Argument(metavar="ID", help="As `quarantine list` shows it, or its beginning.")
    ],
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Show one of the newest kept rejections whole, as JSON: `raw` is what was sent."""
    found = [row for row in _rows(data, url, key, LIMIT_MAX) if str(row["quarantine_id"]).startswith(quarantine_id)]
    if len(found) != 1:
        which = "does not exist" if not found else f"begins {len(found)} of them"
        fail(f"quarantine {quarantine_id}: {which}. `embedsink quarantine list` shows the newest {LIMIT_MAX:,}.")
    # Once more by its whole id: the list has only the beginning of long ones.
    [whole] = _rows(data, url, key, 1, quarantine_id=found[0]["quarantine_id"])
    typer.echo(strip_control(json.dumps(whole, indent=2, ensure_ascii=False)))


@app.command(
    epilog=examples(
        "embedsink quarantine replay --data data",
        "EMBEDSINK_KEY=es_admin_… embedsink quarantine replay --url https://engine.example.com",
    )
)
def replay(data: Data = DATA, url: Url = None, key: KeyOption = None) -> None:
    """Try everything in quarantine again, after an upgrade or a change of settings.

    With --data while no server has the folder open; else with --url and an admin key.
    """
    if url is not None:
        replayed, rejected, untried = _replay_there(url, key)
    else:
        with or_through_a_server():
            replayed, rejected, untried = asyncio.run(_replay_here(existing(data)))
    say(f"replayed {replayed:,}, still rejected {rejected:,}.")
    if untried:
        say(
            f"{untried:,} not tried: `id_conflict` and `out_of_scope` stay so. Send them anew, by other ids or keys. "
            "Nor can that be replayed of which only the beginning is kept."
        )


@app.command(
    epilog=examples(
        "embedsink quarantine purge --data data",
        "embedsink quarantine purge --before 7d --reason not_json",
        "EMBEDSINK_KEY=es_admin_… embedsink quarantine purge --url https://engine.example.com --key-id k_0123456789ab",
    )
)
def purge(
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what was received before: a time, or an age such as 7d.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="REASON", help="Only what was rejected for it.")] = None,
    key_id: Annotated[
        str | None, typer.Option(metavar="KEY_ID", help="Only what came with this key of `keys list`.")
    ] = None,
    data: Data = DATA,
    url: Url = None,
    key: KeyOption = None,
) -> None:
    """Take rejections out of the quarantine, without asking. Their counts stay in the report `rejections`.

    With --data while no server has the folder open; else with --url and an admin key.
    """
    which = {"before": before, "reason": reason, "key": key_id}
    if url is not None:
        purged = server_at(url, key).delete("quarantine", members=("purged",), query=which)["purged"]
    else:
        with or_through_a_server():
            purged = asyncio.run(_purge_here(existing(data), which))
    say(f"purged {purged:,}.")


async def _purge_here(data: Path, which: dict[str, str | None]) -> int:
    from embedsink.data_folder import DataFolder
    from embedsink.engine import Engine
    from embedsink.settings import read_settings
    from embedsink.transfer.replay import purge as purge_quarantine
    from embedsink.transfer.replay import purge_filter

    chosen = purge_filter(before=which["before"], reason=which["reason"], key_id=which["key"])
    async with Engine(DataFolder(data), read_settings()) as engine:
        return await purge_quarantine(engine, chosen)


def _rows(
    data: Path, url: str | None, key: str | None, limit: int, *, quarantine_id: str | None = None
) -> list[dict[str, Any]]:
    if url is not None:
        return server_at(url, key).get_rows("quarantine", members=LISTED, query={"limit": limit, "id": quarantine_id})
    return _rows_here(data, limit, quarantine_id)


def _rows_here(data: Path, limit: int, quarantine_id: str | None) -> list[dict[str, Any]]:
    from uuid import UUID

    import orjson

    from embedsink.data_folder import DataFolder
    from embedsink.store.reader import EVERYTHING, open_snapshot
    from embedsink.transfer.replay import rows as read

    with open_snapshot(DataFolder(data).snapshot, EVERYTHING) as reader:
        found = read(reader, limit=limit, quarantine_id=UUID(quarantine_id) if quarantine_id else None)
    # As a server writes them.
    rows: list[dict[str, Any]] = json.loads(orjson.dumps(found, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z))
    return rows


def _replay_there(url: str, key: str | None) -> tuple[int, int, int]:
    answer = server_at(url, key).post("quarantine", "replay", members=("replayed", "rejected", "untried"))
    return answer["replayed"], answer["rejected"], answer["untried"]


async def _replay_here(data: Path) -> tuple[int, int, int]:
    from embedsink.data_folder import DataFolder
    from embedsink.engine import Engine
    from embedsink.settings import read_settings
    from embedsink.transfer.replay import replay as try_again

    async with Engine(DataFolder(data), read_settings()) as engine:
        done = await try_again(engine)
    if engine.loader.status.trouble:
        fail(f"{engine.loader.status.trouble}. What was replayed is in the journal; `embedsink serve` loads it.")
    return done.replayed, done.rejected, done.untried

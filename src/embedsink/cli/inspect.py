"""`embedsink inspect`: what arrived of one session, for the tests of a host page."""

import json
from typing import Annotated, Any

import typer

from embedsink.cli.options import KeyOption, examples, server_at, wrong_use
from embedsink.cli.output import fail, show_table, strip_control
from embedsink.errors import Misconfigured, nearest, preview

EXAMPLES = examples(
    "EMBEDSINK_KEY=es_read_… embedsink inspect --session s_9f2c --url https://engine.example.com",
    "embedsink inspect --session s_9f2c --expect ready=1 --expect view=1 --url https://engine.example.com",
)
TOLD = ("isComplete", "acceptedCount", "quarantinedCount", "lostCount", "events", "actions", "rejected")
REJECTED = ("reason", "path", "type", "detail")


def _expected(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition("=")
    if not name or not (count.isascii() and count.isdigit()):
        raise Misconfigured(f"--expect: {preview(text)} is no type with a count. Write it like view=1.")
    from embedsink.protocol.messages import EVENTS

    if name not in EVENTS:
        near = nearest(name, EVENTS)
        instead = f'Did you mean "{near}"?' if near else f"There are {', '.join(sorted(EVENTS))}."
        # A page that is right would fail its test for the test's own slip.
        raise Misconfigured(f"--expect: type {preview(name)} does not exist. {instead}")
    return name, int(count)


def inspect(
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The server to ask.")],
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only of this session.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only what was received then or later.")] = None,
    wait: Annotated[
        int, typer.Option(metavar="SECONDS", min=0, max=30, help="How long what was just sent may take to be loaded.")
    ] = 5,
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=N", help="So many events of this type; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as it is, and no table.")] = False,
    key: KeyOption = None,
) -> None:
    """Show what arrived of a session: events and actions by type, and what was rejected. For tests of a host page.

    Everything that was acknowledged before is in it. Exit code 1 when anything was rejected or lost, when nothing or
    another number of events arrived than expected, or when they are not loaded in time.
    """
    if session is None and since is None:
        raise typer.BadParameter("--session: is missing. Say of which session, or --since when.")
    if session == "":
        raise typer.BadParameter("--session: is empty, perhaps an unset variable. Name the session.")
    with wrong_use():
        expected = dict(map(_expected, expect or []))
    query = {"session": session, "since": since, "wait": wait}
    told = server_at(url, key).get_object("inspect", members=TOLD, query=query)
    if as_json:
        typer.echo(strip_control(json.dumps(told, indent=2, ensure_ascii=False)))
    else:
        _show(told)
    if wrong := _differences(told, expected):
        fail("\n".join(wrong))


def _show(told: dict[str, Any]) -> None:
    counts = [(kind.removesuffix("s"), *one) for kind in ("events", "actions") for one in sorted(told[kind].items())]
    if counts:
        show_table(("direction", "type", "count"), counts)
    if told["rejected"]:
        show_table(REJECTED, [[row[name] for name in REJECTED] for row in told["rejected"]])


def _differences(told: dict[str, Any], expected: dict[str, int]) -> list[str]:
    wrong = [
        f"{name}: {told['events'].get(name, 0):,} arrived, {count:,} expected."
        for name, count in expected.items()
        if told["events"].get(name, 0) != count
    ]
    if not expected and not (told["acceptedCount"] or told["quarantinedCount"] or told["lostCount"]):
        wrong.append("Nothing arrived. Is the session the page's, and is this the server that it sends to?")
    if told["quarantinedCount"]:
        wrong.append(f"{told['quarantinedCount']:,} rejected. The list says why; fix what sends them.")
    if told["lostCount"]:
        wrong.append(f"{told['lostCount']:,} lost, as the forwarder says.")
    if not told["isComplete"]:
        wrong.append("Not all that was acknowledged is loaded yet. Give it more time with --wait, or ask again.")
    return wrong

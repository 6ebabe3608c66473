"""`embedsink inspect`: the events of a session, for the tests of a host page."""

import json
from typing import Annotated, Any

import typer

from embedsink.cli.options import KeyOption, WrongUse, connect, examples, wrong_use
from embedsink.cli.output import fail, strip_control
from embedsink.cli.tables import print_table
from embedsink.errors import Misconfigured, preview, suggestion

EXAMPLES = examples(
    "EMBEDSINK_KEY=es_read_… embedsink inspect --session s_9f2c --url https://events.example.com",
    "embedsink inspect --session s_9f2c --expect ready=1 --expect view=1 --url https://events.example.com",
)
RESPONSE_MEMBERS = ("isComplete", "acceptedCount", "quarantinedCount", "lostCount", "events", "actions", "rejected")
REJECTION_COLUMNS = ("reason", "path", "type", "detail")


def _parse_expectation(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition("=")
    if not name or not (count.isascii() and count.isdigit()):
        raise Misconfigured(f"--expect: {preview(text)} is not a type with a count. Example: view=1.")
    from embedsink.protocol.messages import EVENTS

    # With a misspelled type, a correct page would fail its test.
    if name not in EVENTS:
        raise Misconfigured(f"--expect: type {preview(name)} does not exist. {suggestion(name, sorted(EVENTS))}")
    return name, int(count)


def inspect(
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The server.")],
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only this session.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only events received at this time or later.")
    ] = None,
    wait: Annotated[
        int,
        typer.Option(metavar="SECONDS", min=0, max=30, help="How long to wait until acknowledged events are loaded."),
    ] = 5,
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=N", help="Fail unless there are N events of this type. Repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the server's response instead of tables.")] = False,
    key: KeyOption = None,
) -> None:
    """Count the events and actions of a session by type, and list the rejections. For tests of a host page.

    The counts include everything that was acknowledged before. Exit code 1 if anything was rejected or lost, if a count
    differs from --expect, if nothing was received, or if --wait was too short.
    """
    if session is None and since is None:
        raise WrongUse("--session: is missing. Pass --session or --since.")
    if session == "":
        raise WrongUse("--session: is empty, perhaps an unset variable. Pass the id of the session.")
    with wrong_use():
        expected = dict(map(_parse_expectation, expect or []))
    query = {"session": session, "since": since, "wait": wait}
    response = connect(url, key).get_object("inspect", members=RESPONSE_MEMBERS, query=query)
    if as_json:
        typer.echo(strip_control(json.dumps(response, indent=2, ensure_ascii=False)))
    else:
        _print(response)
    if problems := _problems(response, expected):
        fail("\n".join(problems))


def _print(response: dict[str, Any]) -> None:
    counts = [
        (direction, type_, count)
        for direction in ("event", "action")
        for type_, count in sorted(response[f"{direction}s"].items())
    ]
    if counts:
        print_table(("direction", "type", "count"), counts)
    if response["rejected"]:
        print_table(REJECTION_COLUMNS, [[row[name] for name in REJECTION_COLUMNS] for row in response["rejected"]])


def _problems(response: dict[str, Any], expected: dict[str, int]) -> list[str]:
    problems = [
        f"{name}: {response['events'].get(name, 0):,} received, {count:,} expected."
        for name, count in expected.items()
        if response["events"].get(name, 0) != count
    ]
    if not expected and not (response["acceptedCount"] or response["quarantinedCount"] or response["lostCount"]):
        problems.append("Nothing was received. Check the session id, and the server to which the page sends.")
    if response["quarantinedCount"]:
        problems.append(f"{response['quarantinedCount']:,} rejected. The table has the reasons. Correct the sender.")
    if response["lostCount"]:
        problems.append(f"{response['lostCount']:,} lost, according to the forwarder.")
    if not response["isComplete"]:
        problems.append("Some acknowledged events are not loaded yet. Increase --wait, or retry.")
    return problems

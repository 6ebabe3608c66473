"""`embedsink inspect`: the events of a session, for the tests of a host page."""

from typing import Annotated, Any

import typer

from embedsink.cli.options import KeyOption, UsageError, connect, examples, usage_errors
from embedsink.cli.output import fail, print_json
from embedsink.cli.tables import print_table
from embedsink.errors import Misconfigured, preview, suggestion

EXAMPLES = examples(
    "EMBEDSINK_KEY=es_read_… embedsink inspect --session s_9f2c --url https://events.example.com",
    "embedsink inspect --session s_9f2c --expect ready=1 --expect view=1 --url https://events.example.com",
)
RESPONSE_MEMBERS = ("isComplete", "acceptedCount", "quarantinedCount", "lostCount", "events", "actions", "rejected")
REJECTION_COLUMNS = ("reason", "path", "type", "detail")


def _parse_expectation(text: str) -> tuple[str, int]:
    """Parse a value of --expect, such as `view=1`, into an event type and the expected count.

    Raises:
        Misconfigured: the text is not a type with a count, or the type does not exist.
    """
    name, _, count = text.rpartition("=")
    # `isdigit` alone accepts the digits of other scripts.
    if not name or not (count.isascii() and count.isdigit()):
        raise Misconfigured(f"--expect: {preview(text)} is not a type with a count. Example: view=1.")
    from embedsink.protocol.messages import EVENTS

    # A correct page would fail a test that expects a misspelt type.
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
        typer.Option(
            metavar="SECONDS", min=0, max=30, help="Maximum time to wait for acknowledged events to be loaded."
        ),
    ] = 5,
    expect: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=N", help="Fail unless there are N events of this type. Repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the server's response instead of tables.")] = False,
    key: KeyOption = None,
) -> None:
    """Count the events and actions of a session by type, and list the rejections. For tests of a host page.

    The command first waits, for at most --wait seconds, until every event that was acknowledged before is loaded. The
    exit code is 1 if that takes longer, if anything was rejected or lost, or if a count differs from --expect. Without
    --expect, it is also 1 if nothing was received.
    """
    if session is None and since is None:
        raise UsageError("--session: is missing. Pass --session or --since.")
    if session == "":
        raise UsageError("--session: is empty, perhaps an unset variable. Pass the id of the session.")
    with usage_errors():
        expected_counts = dict(_parse_expectation(text) for text in expect or [])
    query = {"session": session, "since": since, "wait": wait}
    response = connect(url, key).get_object("inspect", required_members=RESPONSE_MEMBERS, query=query)
    if as_json:
        print_json(response)
    else:
        _print_counts(response)
        _print_rejections(response)
    problems = _problems(response, expected_counts)
    if problems:
        fail("\n".join(problems))


def _print_counts(response: dict[str, Any]) -> None:
    """Print a table with the counts of events and actions by type, if there are any."""
    events = [("event", type_, count) for type_, count in sorted(response["events"].items())]
    actions = [("action", type_, count) for type_, count in sorted(response["actions"].items())]
    if events or actions:
        print_table(("direction", "type", "count"), [*events, *actions])


def _print_rejections(response: dict[str, Any]) -> None:
    """Print a table of the rejections, if there are any."""
    if response["rejected"]:
        print_table(REJECTION_COLUMNS, [[row[name] for name in REJECTION_COLUMNS] for row in response["rejected"]])


def _problems(response: dict[str, Any], expected_counts: dict[str, int]) -> list[str]:
    """Return a sentence for each reason why the session fails the test."""
    problems = []
    for name, expected_count in expected_counts.items():
        received_count = response["events"].get(name, 0)
        if received_count != expected_count:
            problems.append(f"{name}: {received_count:,} received, {expected_count:,} expected.")
    total_count = response["acceptedCount"] + response["quarantinedCount"] + response["lostCount"]
    # With --expect, a count of 0 may be the expected one.
    if not expected_counts and total_count == 0:
        problems.append("Nothing was received. Check the session id, and the server to which the page sends.")
    if response["quarantinedCount"]:
        problems.append(f"{response['quarantinedCount']:,} rejected. The table has the reasons. Correct the sender.")
    if response["lostCount"]:
        problems.append(f"{response['lostCount']:,} lost, according to the forwarder.")
    if not response["isComplete"]:
        problems.append("Some acknowledged events are not loaded yet. Increase --wait, or retry.")
    return problems

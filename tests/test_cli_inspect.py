"""`embedsink inspect`: what a pipeline reads of it, and its exit code."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.envelope.sending import event_or_action
from tests.servers import RunningServer, running_server

VISIT = [event_or_action(f"event:{name}") for name in ("ready", "view", "dashboard-loaded")]
WRONG = event_or_action("event:download", {"format": "d\x1boc"})
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("inspect") / "data") as server:
        key = server.key()
        for session, events in (("good", VISIT), ("bad", [*VISIT, WRONG])):
            body: dict[str, Any] = {"context": {"session": session}, "events": events}
            assert server.post(body, key=key).status == 202
        yield server


@pytest.fixture(scope="module")
def reader(server: RunningServer) -> str:
    return server.key("read")


def inspect(server: RunningServer, key: str, *words: str) -> Done:
    command = [sys.executable, "-m", "embedsink", "inspect", "--url", server.url, "--key", key, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_as_expected_is_exit_code_0(server: RunningServer, reader: str) -> None:
    expected = ("--expect", "ready=1", "--expect", "view=1", "--expect", "download=0")
    done = inspect(server, reader, "--session", "good", *expected)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split() for line in done.stdout.splitlines() if "event" in line] == [
        ["event", "dashboard-loaded", "1"],
        ["event", "ready", "1"],
        ["event", "view", "1"],
    ]


def test_another_number_is_exit_code_1_and_named(server: RunningServer, reader: str) -> None:
    done = inspect(server, reader, "--session", "good", "--expect", "view=2", "--expect", "drilldown=1")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["view: 1 arrived, 2 expected.", "drilldown: 0 arrived, 1 expected."]


def test_a_session_of_which_nothing_arrived_is_exit_code_1_unless_that_was_expected(
    server: RunningServer, reader: str
) -> None:
    done = inspect(server, reader, "--session", "godo")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Nothing arrived. Is the session the page's")
    assert inspect(server, reader, "--session", "godo", "--expect", "view=0").returncode == 0


def test_a_rejection_is_exit_code_1_and_shown_without_commands_for_the_terminal(
    server: RunningServer, reader: str
) -> None:
    done = inspect(server, reader, "--session", "bad")
    assert done.returncode == 1
    assert "bad_field" in done.stdout
    assert "payload.format" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr.startswith("1 rejected.")


def test_as_json_it_is_the_answer_itself(server: RunningServer, reader: str) -> None:
    done = inspect(server, reader, "--since", "1h", "--json")
    told = json.loads(done.stdout)
    assert (told["acceptedCount"], told["quarantinedCount"]) == (6, 1)
    assert told == server.get("/api/v1/inspect?since=1h", key=reader).json()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "--session: is missing"),
        (("--session", ""), "--session: is empty, perhaps an unset variable."),
        (("--session", "s", "--expect", "view"), "is no type with a count"),
        (("--session", "s", "--expect", "=1"), "is no type with a count"),
        (("--session", "s", "--expect", "veiw=1"), '--expect: type "veiw" does not exist. Did you mean "view"?'),
        (("--session", "s", "--expect", "refresh=1"), "There are ai-query, dashboard-loaded, download,"),
        (("--session", "s", "--wait", "31"), "--wait"),
        (("--since", "yesterday"), "since"),
    ],
)
def test_wrong_use_is_exit_code_2(server: RunningServer, reader: str, words: tuple[str, ...], sentence: str) -> None:
    done = inspect(server, reader, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr

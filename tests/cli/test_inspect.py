"""The command `embedsink inspect`: its output and exit codes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.envelopes import event_or_action
from tests.support.servers import RunningServer, running_server

VISIT = [event_or_action(f"event:{name}") for name in ("ready", "view", "dashboard-loaded")]
WRONG = event_or_action("event:download", {"format": "d\x1boc"})
Result = subprocess.CompletedProcess[str]


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


def inspect(server: RunningServer, key: str, *words: str) -> Result:
    command = [sys.executable, "-m", "embedsink", "inspect", "--url", server.url, "--key", key, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_expected_counts_are_exit_code_0(server: RunningServer, reader: str) -> None:
    expected = ("--expect", "ready=1", "--expect", "view=1", "--expect", "download=0")
    result = inspect(server, reader, "--session", "good", *expected)
    assert (result.returncode, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines() if "event" in line] == [
        ["event", "dashboard-loaded", "1"],
        ["event", "ready", "1"],
        ["event", "view", "1"],
    ]


def test_an_unexpected_count_is_exit_code_1(server: RunningServer, reader: str) -> None:
    result = inspect(server, reader, "--session", "good", "--expect", "view=2", "--expect", "drilldown=1")
    assert result.returncode == 1
    assert result.stderr.splitlines() == ["view: 1 received, 2 expected.", "drilldown: 0 received, 1 expected."]


def test_an_unknown_session_is_exit_code_1_unless_expected(server: RunningServer, reader: str) -> None:
    result = inspect(server, reader, "--session", "godo")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("Nothing was received. Check the session id")
    assert inspect(server, reader, "--session", "godo", "--expect", "view=0").returncode == 0


def test_a_rejection_is_exit_code_1_and_listed_without_control_characters(server: RunningServer, reader: str) -> None:
    result = inspect(server, reader, "--session", "bad")
    assert result.returncode == 1
    assert "bad_field" in result.stdout
    assert "payload.format" in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr.startswith("1 rejected.")


def test_json_is_the_response_of_the_server(server: RunningServer, reader: str) -> None:
    result = inspect(server, reader, "--since", "1h", "--json")
    response = json.loads(result.stdout)
    assert (response["acceptedCount"], response["quarantinedCount"]) == (6, 1)
    assert response == server.get("/api/v1/inspect?since=1h", key=reader).json()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "--session: is missing"),
        (("--session", ""), "--session: is empty, perhaps an unset variable."),
        (("--session", "s", "--expect", "view"), "is not a type with a count"),
        (("--session", "s", "--expect", "=1"), "is not a type with a count"),
        (("--session", "s", "--expect", "veiw=1"), '--expect: type "veiw" does not exist. Did you mean "view"?'),
        (("--session", "s", "--expect", "refresh=1"), "Valid names: ai-query, dashboard-loaded, download,"),
        (("--session", "s", "--wait", "31"), "--wait"),
        (("--since", "yesterday"), "since"),
    ],
)
def test_wrong_use_is_exit_code_2(server: RunningServer, reader: str, words: tuple[str, ...], sentence: str) -> None:
    result = inspect(server, reader, *words)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr

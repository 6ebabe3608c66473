"""The order of system calls, recorded by strace. A kill can't test it, because the page cache survives a kill.

A power failure loses all data that is not synced. So the group of a 202 must be written and synced before the
response is sent, and so must the segment's name in its folder.
"""

import http.client
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from tests.support.crash_harness import CrashHarness, Server, senders
from tests.support.envelopes import view
from tests.support.programs import require

# Each of these injected bugs breaks a promise only in a power failure.
NO_SYNC = "from embedsink.journal import open_segment\nopen_segment.fdatasync = lambda descriptor: None\n"
NO_FOLDER_SYNC = "from embedsink.journal import writer as journal\njournal.Journal._sync_folder = lambda self: None\n"
SYNC_AFTER_THE_ANSWER = """
import os
from embedsink.journal import open_segment, writer as journal
call_soon, sync = journal.Journal._call_soon, open_segment.fdatasync
open_segment.fdatasync = lambda descriptor: None
def answer_then_sync(self, *arguments):
    call_soon(self, *arguments)
    import time; time.sleep(0.05)
    sync(self._segment._descriptor)
journal.Journal._call_soon = answer_then_sync
"""
TRACED = "openat,write,writev,sendto,sendmsg,fdatasync,fsync,rename,renameat,renameat2"
_CALL = re.compile(r"^\d+ +(?:<\.\.\. )?(?P<name>\w+)(?P<resumed> resumed>)?(?P<arguments>.*)$")

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(autouse=True)
def strace() -> None:
    require("strace")


class Call(NamedTuple):
    """The start of a system call (`begins`), its end (`ends`), or both."""

    name: str
    arguments: str
    begins: bool
    ends: bool


def calls(trace: Path) -> Iterator[Call]:
    """Parse the output of strace in order of time. The end of a call has the arguments of its start."""
    started_calls: dict[str, str] = {}
    for line in trace.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        thread, name, arguments = line.split(" ", 1)[0], match["name"], match["arguments"]
        unfinished = arguments.endswith("<unfinished ...>")
        if unfinished:
            started_calls[thread] = arguments
        elif match["resumed"]:
            arguments = started_calls.pop(thread, "") + arguments
        yield Call(name, arguments, begins=not match["resumed"], ends=not unfinished)


def broken_order(trace: Path) -> tuple[list[str], int]:
    """Return the writes and responses that came too early, and the number of 202s."""
    unsynced_writes, unsynced_creations, unsynced_renames = False, False, False
    broken, answer_count = [], 0
    for call in calls(trace):
        in_segment = re.search(r"/journal/[^/>]*\.open>", call.arguments) is not None
        if call.name == "write" and in_segment and call.begins:
            unsynced_writes = True
            if unsynced_creations or unsynced_renames:
                broken.append("write into a segment before its folder was synced")
        elif call.name == "fdatasync" and in_segment and call.ends:
            unsynced_writes = False
        elif call.name == "openat" and "O_CREAT" in call.arguments and ".open" in call.arguments and call.begins:
            unsynced_creations = True
        elif call.name.startswith("rename") and ".ndjson" in call.arguments and call.begins:
            unsynced_renames = True
        elif call.name == "fsync" and "/journal>" in call.arguments and call.ends:
            unsynced_creations = unsynced_renames = False
        elif "HTTP/1.1 202" in call.arguments and call.begins:
            answer_count += 1
            if unsynced_writes or unsynced_creations:
                broken.append("202 before the sync")
    return broken, answer_count


def trace_of(folder: Path, injected: str = "") -> Path:
    """Record the system calls of a server that receives single events over several segments."""
    data, trace = folder / "data", folder / "trace"
    data.mkdir()
    _, token = KeyStore(data / "keys.json").create(KeyKind.INGEST, now=time.time())
    # -D: signals go to the server and not to strace.
    trace_command = (
        "strace",
        "-D",
        "-f",
        "-y",
        "-s",
        "32",
        "-e",
        f"trace={TRACED}",
        "-e",
        "signal=none",
        "-o",
        str(trace),
    )
    server = Server(data, injected=injected, trace_command=trace_command, EMBEDSINK_SEGMENT_SEAL_S="0.2")
    try:
        server.wait_until_ready()
        for _ in range(12):
            assert post(server.port, token) == 202
            time.sleep(0.05)
        assert server.stop() == 0
    finally:
        server.kill()
    wait_until_written(trace)
    return trace


def wait_until_written(trace: Path) -> None:
    """Wait for strace, which ends shortly after the server."""
    for _ in range(100):
        if "+++ exited with" in trace.read_text(errors="replace")[-400:]:
            return
        time.sleep(0.05)


def post(port: int, token: str) -> int:
    """Send one event. Return the status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", "/api/v1/events", json.dumps(view()), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_202_is_sent_after_its_group_and_its_segments_name_are_synced(tmp_path: Path) -> None:
    trace = trace_of(tmp_path)
    assert broken_order(trace) == ([], 12)
    assert len(re.findall(r"rename.*\.ndjson", trace.read_text())) > 1


@pytest.mark.parametrize(
    "injected",
    [NO_SYNC, NO_FOLDER_SYNC, SYNC_AFTER_THE_ANSWER],
    ids=["no_sync", "no_folder_sync", "sync_after_the_answer"],
)
def test_the_check_detects_an_injected_bug(tmp_path: Path, injected: str) -> None:
    broken, answer_count = broken_order(trace_of(tmp_path, injected))
    assert answer_count == 12
    assert broken


def test_a_failing_disk_refuses_the_group_and_ends_the_server(tmp_path: Path) -> None:
    harness = CrashHarness(tmp_path / "data")
    fault = "inject=fdatasync:error=EIO:when=20+"
    failing = ("strace", "-D", "-f", "-o", os.devnull, "-e", "trace=fdatasync", "-e", fault)
    server = Server(harness.data, trace_command=failing)
    try:
        server.wait_until_ready()
        with senders(server.port, harness.token, harness.log):
            assert server.process.wait(20) == 1
    finally:
        server.kill()

    assert harness.log.answered
    assert harness.restart_and_check() == []

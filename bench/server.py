"""The servers under measurement, in child processes that /proc describes."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.data_folder import DataFolder
from embedsink.demo.fixtures import ORIGINS
from embedsink.demo.ports import free_port_pairs
from embedsink.demo.send import Browsers, SendCounts
from embedsink.demo.server import ChildServer
from embedsink.errors import EmbedsinkError
from embedsink.key_scope import EVERYTHING
from embedsink.store.snapshot_reader import open_snapshot

CATCH_UP_TIMEOUT_S = 180
# The first port and the number of ports. The tests use the ports above them.
PORTS = (10_000, 2_000)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BenchError(EmbedsinkError):
    """A measurement failed; the message has the cause."""


class MeasuredServer(ChildServer):
    """A server whose CPU time and memory are measured. It must exit without an error."""

    def __init__(self, module: list[str], *, ready_path: str) -> None:
        port = next(free_port_pairs(*PORTS))
        super().__init__([*module, "--port", str(port)], port, ready_path=ready_path)

    def __exit__(self, *error: object) -> None:
        code = self.stop()
        # After a clean shutdown, uvicorn ends itself with the SIGTERM that it received.
        if code not in (0, -signal.SIGTERM) and error[0] is None:
            raise BenchError(f"{self.url}: ended with exit code {code}.")

    def cpu_s(self) -> float:
        """Return the CPU time of all threads so far, in user and kernel mode."""
        return _cpu_s(Path(f"/proc/{self.pid}/stat"))

    def loop_cpu_s(self) -> float:
        """Return the CPU time of the first thread, which runs the event loop."""
        return _cpu_s(Path(f"/proc/{self.pid}/task/{self.pid}/stat"))

    def memory_peak_mib(self) -> float:
        """Return the peak of resident memory (VmHWM)."""
        return _memory_peak_mib(self.pid)

    def tree_memory_peak_mib(self) -> float:
        """Return the sum of the peaks of the server and its worker processes."""
        child_lists = Path(f"/proc/{self.pid}/task").glob("*/children")
        children = [pid for path in child_lists for pid in path.read_text(encoding="ascii").split()]
        return self.memory_peak_mib() + sum(_memory_peak_mib(int(pid)) for pid in children)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The server's counts: durable envelopes by outcome, and loaded envelopes by outcome."""

    accepted: int
    quarantined: int
    loaded: int
    duplicate: int

    @property
    def backlog(self) -> int:
        """The number of accepted envelopes that are not loaded yet."""
        return self.accepted - self.loaded - self.duplicate


class Server(MeasuredServer):
    """`embedsink serve` on a data folder, with an ingest key, which browsers use, and a read key."""

    def __init__(self, folder: DataFolder) -> None:
        keys = KeyStore(folder.keys)
        _, self.ingest_key = keys.create(KeyKind.INGEST, now=time.time())
        _, self.read_key = keys.create(KeyKind.READ, now=time.time())
        super().__init__(["embedsink", "serve", "--data", str(folder.path)], ready_path="/readyz")
        self.browsers = Browsers(self.port, dict.fromkeys(ORIGINS, self.ingest_key), SendCounts())

    def ledger(self) -> Ledger:
        """Return the current counts."""
        loaded, received = self.loaded_counts(), self.received_counts()
        return Ledger(received["accepted"], received["quarantined"], loaded["accepted"], loaded["duplicate"])

    def catch_up(self) -> float:
        """Wait until all accepted envelopes are loaded. Return the seconds that it took."""
        started_at = time.monotonic()
        while (backlog := self.ledger().backlog) > 0:
            if time.monotonic() - started_at > CATCH_UP_TIMEOUT_S:
                raise BenchError(f"loader: {backlog:,} envelopes are not loaded after {CATCH_UP_TIMEOUT_S} s.")
            time.sleep(0.05)
        return time.monotonic() - started_at


@contextmanager
def fresh_folder(root: Path) -> Iterator[DataFolder]:
    """Create an empty data folder below `root`, and delete it after the block."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=root) as path:
        folder = DataFolder(Path(path))
        folder.create()
        yield folder


def stored_rows(folder: DataFolder) -> int:
    """Return the number of events and actions in the snapshot of a stopped server."""
    with open_snapshot(folder.snapshot, EVERYTHING.variables()) as reader:
        rows, _ = reader.run(
            "select count(*) as row_count from (select event_id from event union all select action_id from action)"
        )
        return int(rows["row_count"][0])


def _memory_peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM"))


def _cpu_s(stat: Path) -> float:
    # proc(5): utime and stime are fields 14 and 15. The name, field 2, may contain blanks.
    fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

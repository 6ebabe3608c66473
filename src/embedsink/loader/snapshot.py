"""Verified copies of a database file, each made by a child process: see `embedsink.loader.copy_file`."""

import contextlib
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from embedsink.durable_files import sync_folder
from embedsink.loader import copy_file
from embedsink.store.duckdb_errors import StoreDamaged

# A step is 16 MiB, so this is less than a megabyte a second.
STALLED_S = 20.0
COMMAND = (sys.executable, "-I", "-m", copy_file.__name__)
_POLL_S = 0.05
_NEW = ".new"


class Copy:
    """A verified copy in the making. It is complete when `finish` returns; the target then has another name.

    Args:
        source: the database file. It must not change while `needs_source`.
        target: what the copy is for. The child writes to a file beside it.
        verifies_target: whether the child verifies the target, too; see `target_damage`.
        on_change: called in another thread when the source is not needed any more, and at the end.
    """

    def __init__(
        self,
        source: Path,
        target: Path,
        *,
        verifies_target: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.target_damage: str | None = None
        self.path = target.with_name(target.name + _NEW)
        # An earlier child that could not be killed goes on in a file without a name.
        self.path.unlink(missing_ok=True)
        self._source = source
        self._on_change = on_change
        self._step_at = time.monotonic()
        self._is_copied = False
        self._took_s = math.nan
        self._error = ""
        # numpy would begin threads that compute nothing here.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        self._child = subprocess.Popen(
            [*COMMAND, *map(str, (source, self.path, target)[: 3 if verifies_target else 2])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._watcher = threading.Thread(target=self._watch, name="snapshot", daemon=True)
        self._watcher.start()

    @property
    def is_running(self) -> bool:
        """Whether the child process still exists."""
        return self._child.poll() is None

    @property
    def needs_source(self) -> bool:
        """Whether the child still copies the source."""
        return self.is_running and not self._is_copied

    @property
    def stalled_s(self) -> float:
        """Seconds since the child's last step."""
        return time.monotonic() - self._step_at

    def wait(self, *, until: float = math.inf, only_for_source: bool = False) -> bool:
        """Wait for the end, or as long as the child needs the source. Return False after a stall, or at `until`."""
        while self.needs_source if only_for_source else self.is_running:
            if self.stalled_s >= STALLED_S or time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        return True

    def finish(self) -> float:
        """Check what became of it, after its end.

        Returns:
            The seconds that the child was busy, without those in which it started.

        Raises:
            StoreDamaged: the source is damaged.
            OSError: there was no room, the disk failed, or the child was killed.
        """
        self._watcher.join()
        if self._child.returncode == 0 and not math.isnan(self._took_s):
            return self._took_s
        self.path.unlink(missing_ok=True)
        why = (self._error.strip().splitlines() or ["its process was killed"])[-1]
        if self._child.returncode == copy_file.DAMAGED:
            raise StoreDamaged(why)
        raise OSError(f"copying {self._source.name}: {why}")

    def abandon(self) -> None:
        """Kill the child, and don't wait: one that hangs in a system call ends when the disk answers."""
        with contextlib.suppress(OSError):  # The disk that it waits for may refuse this, too.
            self._child.kill()
            self.path.unlink(missing_ok=True)

    def _watch(self) -> None:
        with self._child as child:
            for line in child.stdout or ():
                self._step_at = time.monotonic()
                word, _, rest = line.strip().partition(" ")
                if word == copy_file.COPIED:
                    self._is_copied = True
                    self._on_change()
                elif word == copy_file.PREDECESSOR_DAMAGED:
                    self.target_damage = rest
                elif word == copy_file.VERIFIED:
                    self._took_s = float(rest)
            self._error = child.stderr.read() if child.stderr else ""
        self._on_change()


def replace_by_copy(target: Path, source: Path, *, on_step: Callable[[], None] = lambda: None) -> None:
    """Replace a database file by a durable, verified copy of another. Programs that have the old file open keep it.

    Args:
        target: the file that is replaced.
        source: the other one.
        on_step: called several times a second; what it raises ends the copy.

    Raises:
        StoreDamaged: the source is damaged. The target is untouched.
        OSError: there was no room, the disk failed, or it made no progress. The target is untouched.
    """
    copy = Copy(source, target)
    try:
        while not copy.wait(until=time.monotonic() + 1.0):
            on_step()
            if copy.stalled_s >= STALLED_S:
                raise OSError(stalled(source))
    except BaseException:
        copy.abandon()
        raise
    copy.finish()
    copy.path.rename(target)
    sync_folder(target.parent)


def put_into_place(copy: Copy, target: Path, *, previous: Path) -> None:
    """Rename a finished copy to `target`, whose file becomes `previous`, unless it is damaged.

    `target` exists at every moment.
    """
    if target.exists() and not copy.target_damage:
        linked = previous.with_name(previous.name + _NEW)
        linked.unlink(missing_ok=True)
        linked.hardlink_to(target)
        linked.rename(previous)
    copy.path.rename(target)
    sync_folder(target.parent)


def stalled(source: Path) -> str:
    """Return a sentence about a copy that hangs."""
    return f"copying {source.name}: has made no progress for {STALLED_S:g} s, and was given up. Look at the disk"

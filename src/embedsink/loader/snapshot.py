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

# A copy without a step for this time has stalled. A step is 16 MiB, so a stalled copy writes less than 1 MB/s.
STALLED_S = 20.0
COMMAND = (sys.executable, "-I", "-m", copy_file.__name__)
_POLL_S = 0.05
_NEW_SUFFIX = ".new"


class CopyProcess:
    """A child process that copies a database file to the temporary file `path`, and verifies the copy.

    Args:
        source: the database file. It must not change while `needs_source` is true.
        target: the file that the copy will replace (its predecessor).
        verifies_predecessor: whether the child also verifies the predecessor. Damage is in `predecessor_damage`.
        on_change: called in another thread when the source is no longer needed, and when the child has ended.
    """

    def __init__(
        self,
        source: Path,
        target: Path,
        *,
        verifies_predecessor: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.predecessor_damage: str | None = None
        self.path = target.with_name(target.name + _NEW_SUFFIX)
        # Unlink instead of overwriting: an earlier child that could not be killed may still write to this file.
        self.path.unlink(missing_ok=True)
        self._source = source
        self._predecessor = target
        self._on_change = on_change
        self._step_at = time.monotonic()  # the time of the child's last step
        self._is_copied = False
        self._disk_busy_s: float | None = None  # None until the child has verified the copy
        self._stderr = ""
        self._child = self._start_child(verifies_predecessor)
        self._watcher = threading.Thread(target=self._watch, name="snapshot", daemon=True)
        self._watcher.start()

    def _start_child(self, verifies_predecessor: bool) -> subprocess.Popen[str]:
        """Start `copy_file SOURCE TARGET [PREDECESSOR]`. The temporary file is its TARGET."""
        arguments = [str(self._source), str(self.path)]
        if verifies_predecessor:
            arguments.append(str(self._predecessor))
        return subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # numpy would start threads that are not needed here.
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )

    @property
    def is_running(self) -> bool:
        """Whether the child process still exists."""
        return self._child.poll() is None

    @property
    def needs_source(self) -> bool:
        """Whether the child is still copying the source."""
        return self.is_running and not self._is_copied

    @property
    def stalled_s(self) -> float:
        """The seconds since the child's last step."""
        return time.monotonic() - self._step_at

    def wait(self, *, until: float = math.inf, only_for_source: bool = False) -> bool:
        """Wait until the child has ended. Return False if the child stalls, or has not ended at `until`.

        Args:
            until: the end of the wait, in monotonic seconds.
            only_for_source: whether to wait only until the child no longer needs the source.
        """
        while True:
            must_wait = self.needs_source if only_for_source else self.is_running
            if not must_wait:
                return True
            if self.stalled_s >= STALLED_S or time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)

    def finish(self) -> float:
        """Check the result of a child that has ended.

        Returns:
            The seconds for which the disk was busy with the copy.

        Raises:
            StoreDamaged: the source is damaged.
            OSError: the disk has no space, the disk has failed, or the child was killed.
        """
        self._watcher.join()
        if self._child.returncode == 0 and self._disk_busy_s is not None:
            return self._disk_busy_s
        self.path.unlink(missing_ok=True)
        # The last line has the message, even if the child printed a traceback.
        error_lines = self._stderr.strip().splitlines()
        cause = error_lines[-1] if error_lines else "its process was killed"
        if self._child.returncode == copy_file.DAMAGED:
            raise StoreDamaged(cause)
        raise OSError(f"copying {self._source.name}: {cause}")

    def abandon(self) -> None:
        """Kill the child without waiting for its end: it may hang in a system call until the disk responds."""
        with contextlib.suppress(OSError):  # On a hung disk, the unlink may fail too.
            self._child.kill()
            self.path.unlink(missing_ok=True)

    def _watch(self) -> None:
        """Read the lines that the child prints: see `embedsink.loader.copy_file`."""
        with self._child as child:  # The block waits for the end of the child.
            for line in child.stdout or ():
                self._step_at = time.monotonic()
                word, _, value = line.strip().partition(" ")
                if word == copy_file.COPIED:
                    self._is_copied = True
                    self._on_change()
                elif word == copy_file.PREDECESSOR_DAMAGED:
                    self.predecessor_damage = value
                elif word == copy_file.VERIFIED:
                    self._disk_busy_s = float(value)
            self._stderr = child.stderr.read() if child.stderr else ""
        self._on_change()


def replace_by_copy(target: Path, source: Path, *, on_step: Callable[[], None] = lambda: None) -> None:
    """Replace a database file with a durable, verified copy of another database file.

    A program that has the old file open continues to read it.

    Args:
        target: the file to replace.
        source: the file to copy.
        on_step: called once a second. An exception from it ends the copy.

    Raises:
        StoreDamaged: the source is damaged. The target is unchanged.
        OSError: the disk has no space, has failed or is stalled. The target is unchanged.
    """
    copy = CopyProcess(source, target)
    try:
        while not copy.wait(until=time.monotonic() + 1.0):
            on_step()
            if copy.stalled_s >= STALLED_S:
                raise OSError(stall_message(source))
    except BaseException:
        copy.abandon()
        raise
    copy.finish()
    copy.path.rename(target)
    sync_folder(target.parent)


def publish_copy(copy: CopyProcess, target: Path, *, previous: Path) -> None:
    """Rename a finished copy to `target`. The old target becomes `previous`, unless it is damaged."""
    if target.exists() and not copy.predecessor_damage:
        # Create a hard link instead of renaming, so that `target` exists at each moment.
        link = previous.with_name(previous.name + _NEW_SUFFIX)
        link.unlink(missing_ok=True)
        link.hardlink_to(target)
        link.rename(previous)
    copy.path.rename(target)
    sync_folder(target.parent)


def stall_message(source: Path) -> str:
    """Return the error message for a stalled copy."""
    return f"copying {source.name}: made no progress for {STALLED_S:g} s and was stopped. Check the disk"

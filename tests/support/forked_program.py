"""The program `embedsink` in a separate process.

It forks from a process that has imported the program. The imports take most of the CPU time of a server's start, and
the tests start hundreds of servers. A forked program ends without Python's finalization, so some tests start a command.
"""

import contextlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from embedsink.__main__ import run

_forkserver = multiprocessing.get_context("forkserver")
_forkserver.set_forkserver_preload(["tests.support.forked_program", "embedsink.cli.app", "embedsink.http.server"])


class ForkedProgram:
    """A forked program, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, words: Sequence[str], log: Path, environment: Mapping[str, str], injected: str) -> None:
        log.touch()  # Tests may read the log before the program opens it.
        umask = os.umask(0)
        os.umask(umask)  # There is no call that only reads it.
        # As a daemon, it ends with pytest even if its test failed to stop it.
        self._process = _forkserver.Process(
            target=_run, args=(list(words), log, dict(environment), injected, umask), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code; None while the program is running."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the program has ended. Return its exit code."""
        self._process.join(timeout)
        exit_code = self.poll()
        if exit_code is None:
            raise subprocess.TimeoutExpired("embedsink", timeout or 0.0)
        return exit_code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless the program has ended."""
        self._process.kill()


Program = ForkedProgram | subprocess.Popen[bytes]


def start_program(
    words: Sequence[str],
    *,
    log: Path,
    environment: Mapping[str, str],
    wrapper: Sequence[str] = (),
    injected: str = "",
) -> Program:
    """Start `embedsink`.

    Args:
        words: the arguments of `embedsink`.
        log: the file to which stdout and stderr are appended.
        environment: all environment variables.
        wrapper: a command that runs the program's command, such as `strace`. Then the program imports its modules
            itself.
        injected: Python code that runs before the command. Without a wrapper, all modules are imported before it runs.
            To replace a function, set it on its class or in the module that calls it: modules keep the names that
            they have imported.
    """
    if not wrapper:
        return ForkedProgram(words, log, environment, injected)
    code = f"{injected}\nfrom embedsink.__main__ import run\nrun()"
    with log.open("ab") as file:
        return subprocess.Popen(
            [*wrapper, sys.executable, "-c", code, *words], stdout=file, stderr=file, env=environment
        )


def _run(words: list[str], log: Path, environment: dict[str, str], injected: str, umask: int) -> None:
    os.umask(umask)  # The fork server keeps the umask with which it was started.
    with log.open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["embedsink", *words]
    exec(injected, {})
    run()

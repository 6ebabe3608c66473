"""A server under measurement: started, watched through /proc, and stopped by its process id."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from bench.ports import free_ports

READY_TIMEOUT_S = 60
# The first of them, and how many. The tests have those above.
PORTS = (10_000, 2_000)
STOP_TIMEOUT_S = 120
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    """A measurement could not be taken; the message says why."""


@dataclass(frozen=True, slots=True)
class Child:
    """A running server on loopback."""

    port: int
    popen: subprocess.Popen[bytes]
    ready_after_s: float

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def cpu_s(self) -> float:
        """Processor time of all its threads so far, in user and kernel mode."""
        return _cpu_s(Path(f"/proc/{self.popen.pid}/stat"))

    def loop_cpu_s(self) -> float:
        """The same of its first thread, in which the event loop runs."""
        return _cpu_s(Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/stat"))

    def memory_peak_mib(self) -> float:
        """The most memory it ever had in RAM (VmHWM)."""
        return memory_peak_mib(self.popen.pid)

    def client(self) -> httpx.Client:
        """A client for it, which no proxy setting leads astray."""
        return httpx.Client(base_url=self.url, trust_env=False, timeout=30)

    def stop(self) -> None:
        """SIGTERM, and the wait for a clean end.

        Raises:
            BenchError: it did not end cleanly.
        """
        self.popen.terminate()
        try:
            code = self.popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            raise BenchError(f"{self.url}: did not end within {STOP_TIMEOUT_S} s of SIGTERM.") from None
        if code != 0:
            raise BenchError(f"{self.url}: ended with exit code {code}.")


@contextmanager
def running(module: list[str], *, ready_path: str, environment: Mapping[str, str] | None = None) -> Iterator[Child]:
    """A child for the length of a block, ready to serve.

    Args:
        module: the words after `python -m`; `--port` and a free port are added.
        ready_path: answers 200 when the child is ready.
        environment: variables beside our own.
    """
    port = next(free_ports(*PORTS))
    command = [sys.executable, "-m", *module, "--port", str(port)]
    started_at = time.perf_counter()
    popen = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(popen, port, ready_path)
        child = Child(port, popen, time.perf_counter() - started_at)
        yield child
        if popen.poll() is None:
            child.stop()
    finally:
        if popen.poll() is None:
            popen.kill()
            popen.wait()


def _wait_until_ready(popen: subprocess.Popen[bytes], port: int, path: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        while time.monotonic() < deadline:
            if popen.poll() is not None:
                raise BenchError(f"{popen.args!r}: ended at its start with exit code {popen.returncode}.")
            with contextlib.suppress(httpx.TransportError):  # It does not listen yet.
                if client.get(path).status_code == httpx.codes.OK:
                    return
            time.sleep(0.005)
    raise BenchError(f"{popen.args!r}: was not ready within {READY_TIMEOUT_S} s.")


def memory_peak_mib(pid: int) -> float:
    """The most memory that a process ever had in RAM (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM"))


def _cpu_s(stat: Path) -> float:
    # proc(5): utime and stime are fields 14 and 15; the name, field 2, may hold blanks.
    fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

"""The benchmarks: an interrupted one leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import wait_until

REPOSITORY = Path(__file__).parents[1]
TERMINATED = 128 + 15

pytestmark = [pytest.mark.server, pytest.mark.slow]


def children_of(pid: int) -> list[int]:
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def test_sigterm_ends_a_benchmark_with_its_server_and_deletes_its_data(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "visible", "--data-root", str(tmp_path)]
    bench = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: any(tmp_path.glob("*/store.duckdb")), description="the server opens its store")
        [server] = children_of(bench.pid)
    finally:
        bench.terminate()
        exit_code = bench.wait(60)
    assert exit_code == TERMINATED
    assert not Path(f"/proc/{server}").exists()
    assert list(tmp_path.iterdir()) == []

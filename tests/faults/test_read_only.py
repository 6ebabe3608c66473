"""A server runs on a read-only root file system: it writes into its data folder and nowhere else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.all_writes import cause_all_writes
from tests.support.envelopes import view
from tests.support.programs import require
from tests.support.servers import running_server

# Only the named folders are writable, as with `docker run --read-only`.
READ_ONLY = """
while [ "$1" != -- ]; do mount --bind "$1" "$1"; writable="$writable|$1"; shift; done
cut -d " " -f 5 /proc/self/mountinfo | grep -vE "^(/proc.*|/sys.*$writable)$" | while read -r mounted; do
    mount -o remount,bind,ro "$mounted" || exit 1
done
shift
! touch /tmp/writable 2>/dev/null || exit 1
exec "$@"
"""

pytestmark = pytest.mark.server


def read_only_but(*folders: Path) -> list[str]:
    """Return the beginning of a command that can write into these folders only."""
    require("unshare")
    words = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        words.append("--map-root-user")
    words += ["sh", "-c", READ_ONLY, "sh", *map(str, folders), "--"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"this user may not mount: {tried.stderr}")
    return words


@pytest.mark.slow
def test_a_server_writes_nowhere_but_into_its_data_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "dashboards").mkdir()  # The server, not the test, must create the store.
    for _ in ("a new folder", "a restart"):
        with running_server(data, wrapper=read_only_but(data), EMBEDSINK_SNAPSHOT_INTERVAL_S="0.1") as server:
            cause_all_writes(server)
            assert server.stop() == 0
            levels = [json.loads(line)["level"] for line in server.log.read_text().splitlines()]
            assert "error" not in levels


def test_commands_also_need_a_temporary_folder(tmp_path: Path) -> None:
    data, temporary, events = tmp_path / "data", tmp_path / "tmp", tmp_path / "events.ndjson"
    data.mkdir()
    temporary.mkdir()
    events.write_text(json.dumps(view()))
    within = read_only_but(data, temporary)
    for words in (
        ["keys", "create", "--kind", "read"],
        ["import", str(events)],
        ["report", "views"],
        ["report", "--all", "-o", f"{temporary}/all.zip"],
        ["render", "overview", "-o", f"{temporary}/overview.pdf"],
        ["export", "-o", f"{temporary}/events.ndjson"],
    ):
        command = [*within, sys.executable, "-m", "embedsink", *words, "--data", str(data)]
        environment = os.environ | {"TMPDIR": str(temporary)}
        result = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert result.returncode == 0, result.stderr
    assert {path.name for path in temporary.iterdir()} == {"all.zip", "overview.pdf", "events.ndjson"}

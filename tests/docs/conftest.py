"""A server for the commands of the documentation, and a data folder that they can change."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.envelopes import event_or_action
from tests.support.servers import RunningServer, free_port, running_server, wait_until

SESSION = "s_9f2c"
VISIT = [event_or_action(f"event:{name}") for name in ("ready", "view", "dashboard-loaded")]


class Documented(NamedTuple):
    """The real server, keys and folders for the examples of the documentation."""

    server: RunningServer
    ingest_key: str
    read_key: str
    admin_key: str
    data: Path

    def at(self, text: str) -> str:
        """Return a text with the address of the server, and with free ports."""
        for address in ("https://events.example.com", "https://engine.example.com", "http://127.0.0.1:8321"):
            text = text.replace(address, self.server.url)
        return text.replace("--port 8331", f"--port {free_port()}")

    def environment(self) -> dict[str, str]:
        """Return the variables that the documentation expects to be set."""
        keys = {
            "INGEST_KEY": self.ingest_key,
            "READ_KEY": self.read_key,
            "ADMIN_KEY": self.admin_key,
            "EMBEDSINK_KEY": self.read_key,
        }
        return keys | {"SESSION": SESSION}

    def copy_to(self, folder: Path) -> None:
        """Put a data folder that no server has open into a folder, as `data`."""
        shutil.copytree(self.data, folder / "data")


@pytest.fixture(scope="package")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documented]:
    """Start a server with one visit, and create a data folder with the same visit."""
    root = tmp_path_factory.mktemp("documented")
    delivery = {"context": {"session": SESSION, "deployment": 12}, "events": VISIT}
    (root / "visit.ndjson").write_text(json.dumps(delivery))
    command = [sys.executable, "-m", "embedsink", "import", str(root / "visit.ndjson"), "--data", str(root / "data")]
    subprocess.run(command, check=True, capture_output=True)
    with running_server(root / "served", EMBEDSINK_SNAPSHOT_INTERVAL_S="0.1") as server:
        keys = (server.key("ingest"), server.key("read"), server.key("admin"))
        assert server.post(delivery, key=keys[0]).status == 202
        inspect_path = f"/api/v1/inspect?session={SESSION}&wait=10"
        wait_until(
            lambda: server.get(inspect_path, key=keys[1]).json()["isComplete"], description="the visit is loaded"
        )
        yield Documented(server, *keys, root / "data")

"""The directory across kills: a change that was answered survives, and no other change appears."""

import contextlib
import random
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import httpx2
import pytest

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from tests.support.crash_harness import Server as Process

pytestmark = pytest.mark.server

USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"


class Provisioner(threading.Thread):
    """Changes a user and a group until the server is killed. Each change has a greater number than the one before.

    Attributes:
        answered: the number of the last change that was answered, by path.
    """

    def __init__(self, server: Process, key: str, name: str, answered: dict[str, int]) -> None:
        super().__init__()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/scim+json"}
        self._client = httpx2.Client(base_url=f"http://127.0.0.1:{server.port}/api/scim/v2", headers=headers)
        self._name = name
        self.answered = answered

    def run(self) -> None:
        with self._client, contextlib.suppress(httpx2.TransportError):
            for number in range(1_000_000):
                user = self._client.post("/Users", json={"schemas": [USER], "userName": f"{self._name}-{number}"})
                members = [{"value": user.json()["id"]}]
                group = self._client.post("/Groups", json={"schemas": [GROUP], "displayName": "0", "members": members})
                paths = [f"/Users/{user.json()['id']}", f"/Groups/{group.json()['id']}"]
                self.answered |= dict.fromkeys(paths, 0)
                for change in range(1, 6):
                    for path in paths:
                        operation = {"op": "replace", "path": "displayName", "value": str(change)}
                        response = self._client.patch(path, json={"schemas": [PATCH], "Operations": [operation]})
                        assert response.status_code == 204
                        self.answered[path] = change


def test_kills_at_random_moments_lose_and_change_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    _, key = KeyStore(data / "keys.json").create(KeyKind.SCIM, now=time.time())
    moments = random.Random(7)
    answered: dict[str, int] = {}
    for round_number in range(4):
        server = Process(data, trace_command=(), EMBEDSINK_SEGMENT_SEAL_S=str(moments.choice([0.05, 3_600])))
        try:
            server.wait_until_ready()
            stored = read_all(server, key)
            for path, change in answered.items():
                # The change after the last answered one may be durable too.
                assert int(stored[path].get("displayName", 0)) in (change, change + 1)
                answered[path] = int(stored[path].get("displayName", 0))
            assert all(group["members"] for path, group in stored.items() if path.startswith("/Groups"))
            threads = [Provisioner(server, key, f"{round_number}-{number}", answered) for number in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(moments.uniform(0.3, 1.2))
        finally:
            server.kill()
        for thread in threads:
            thread.join()
    assert len(answered) > 8
    server = Process(data, trace_command=())
    try:
        server.wait_until_ready()
        assert read_all(server, key).keys() >= answered.keys()
    finally:
        assert server.stop() == 0
    with contextlib.closing(duckdb.connect(str(data / "store.duckdb"), read_only=True)) as store:
        user_ids = {id for (id,) in store.execute("select user_id from directory_user").fetchall()}
    assert {f"/Users/{id}" for id in user_ids} >= {path for path in answered if path.startswith("/Users")}


def read_all(server: Process, key: str) -> dict[str, dict[str, Any]]:
    """Return the users and groups by path."""
    resources: dict[str, dict[str, Any]] = {}
    headers = {"Authorization": f"Bearer {key}"}
    with httpx2.Client(base_url=f"http://127.0.0.1:{server.port}/api/scim/v2", headers=headers) as client:
        for path in ("/Users", "/Groups"):
            listed = client.get(path, params={"count": 1_000}).json()
            resources |= {f"{path}/{one['id']}": one for one in listed.get("Resources", [])}
    return resources

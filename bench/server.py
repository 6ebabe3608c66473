"""embedsink itself under measurement: a real `embedsink serve` on a temporary data folder, with keys."""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bench.child import BenchError, Child, running
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.data_folder import DataFolder
from embedsink.store.reader import open_snapshot

EVENTS_PATH = "/api/v1/events"
CATCH_UP_TIMEOUT_S = 180


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the server counted: envelopes answered with 202 by outcome, and envelopes loaded by outcome."""

    accepted: int
    quarantined: int
    loaded: int
    duplicate: int

    @property
    def behind(self) -> int:
        """Envelopes that are durable but not yet in the store."""
        return self.accepted - self.loaded - self.duplicate


@dataclass(frozen=True, slots=True)
class Server:
    """A running embedsink."""

    child: Child
    folder: DataFolder
    ingest_key: str
    read_key: str

    def ledger(self) -> Ledger:
        """Its counters now."""
        with self.child.client() as client:
            text = client.get("/metrics").raise_for_status().text
        samples = {
            (sample.name, sample.labels.get("outcome")): int(sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        return Ledger(
            accepted=samples["embedsink_envelopes_total", "accepted"],
            quarantined=samples["embedsink_envelopes_total", "quarantined"],
            loaded=samples["embedsink_loaded_envelopes_total", "accepted"],
            duplicate=samples["embedsink_loaded_envelopes_total", "duplicate"],
        )

    def catch_up(self) -> float:
        """Wait until everything accepted is in the store; how many seconds that took."""
        started_at = time.monotonic()
        while (behind := self.ledger().behind) > 0:
            if time.monotonic() - started_at > CATCH_UP_TIMEOUT_S:
                raise BenchError(f"loader: still {behind:,} envelopes behind after {CATCH_UP_TIMEOUT_S} s.")
            time.sleep(0.05)
        return time.monotonic() - started_at

    def send(self, client: httpx.Client, body: dict[str, Any]) -> None:
        """Post one body; every envelope in it has to be accepted."""
        headers = {"Authorization": f"Bearer {self.ingest_key}", "Content-Type": "application/json"}
        answer = client.post(EVENTS_PATH, content=json.dumps(body), headers=headers)
        if answer.status_code != httpx.codes.ACCEPTED or answer.json()["rejected"]:
            raise BenchError(f"POST {EVENTS_PATH}: {answer.status_code} {answer.text[:300]}")

    def rows(self, client: httpx.Client, path: str, **parameters: object) -> list[dict[str, Any]]:
        """The rows of a report."""
        headers = {"Authorization": f"Bearer {self.read_key}"}
        answer = client.get(path, params={name: str(value) for name, value in parameters.items()}, headers=headers)
        if answer.status_code != httpx.codes.OK:
            raise BenchError(f"GET {path}: {answer.status_code} {answer.text[:300]}")
        rows: list[dict[str, Any]] = answer.json()
        return rows


@contextmanager
def serving(root: Path) -> Iterator[Server]:
    """A server on a fresh folder under `root`, which is removed afterwards."""
    with fresh_folder(root) as folder, serving_on(folder) as server:
        yield server


@contextmanager
def fresh_folder(root: Path) -> Iterator[DataFolder]:
    """An empty data folder under `root`, removed after the block."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=root) as path:
        folder = DataFolder(Path(path))
        folder.create()
        yield folder


@contextmanager
def serving_on(folder: DataFolder) -> Iterator[Server]:
    """A server on a folder that outlives it."""
    keys = KeyStore(folder.keys)
    _, ingest_key = keys.create(KeyKind.INGEST, now=time.time())
    _, read_key = keys.create(KeyKind.READ, now=time.time())
    with running(["embedsink", "serve", "--data", str(folder.path)], ready_path="/readyz") as child:
        yield Server(child, folder, ingest_key, read_key)


def stored_rows(folder: DataFolder) -> int:
    """Rows of events in the snapshot that a server left behind."""
    with open_snapshot(folder.snapshot, {"deployments": None}) as reader:
        rows, _ = reader.run("select count(*) as row_count from event")
        return int(rows["row_count"][0])

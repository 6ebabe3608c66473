"""How to look further: commands that work as they are printed, in another terminal."""

import shlex
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Keys:
    """The tokens of the demo's keys: of each page that sends, by its origin; of the reader and of the pipeline."""

    ingest: dict[str, str]
    read: str
    sync: str


class Snippet(NamedTuple):
    """Something to paste, and what it does."""

    title: str
    lines: tuple[str, ...]


def snippets(url: str, data_folder: Path, keys: Keys) -> list[Snippet]:
    """What to try, in the order of curiosity."""
    folder = shlex.quote(str(data_folder))
    return [
        Snippet("Send one envelope, as it comes out of event.data", _send_one(url, keys)),
        Snippet(
            "A report as CSV",
            (
                f"key={keys.read}",
                'curl -sS -H "Authorization: Bearer $key" \\',
                f"  {url}/api/v1/reports/downloads.csv",
            ),
        ),
        Snippet(
            "The same reports on the command line",
            (f"{program()} report views --data {folder}", f"{program()} report ai_queries --data {folder}"),
        ),
        Snippet("What was quarantined, and why", (f"{program()} quarantine list --data {folder}",)),
        Snippet(
            f"In a notebook, or in {shlex.quote(sys.executable)}",
            (
                "import embedsink",
                f'sink = embedsink.open("{data_folder}")',
                'sink.report("drilldowns")',
                "sink.sql(\"select query, submitted_at from ai_query where status = 'abandoned'\")",
            ),
        ),
    ]


def program() -> str:
    """How to call this embedsink in another terminal: by its name when that finds the same one, else by its path."""
    beside = Path(sys.executable).with_name("embedsink")
    found = shutil.which("embedsink")
    if found and Path(found).resolve() == beside.resolve():
        return "embedsink"
    if beside.exists():
        return shlex.quote(str(beside))
    return f"{shlex.quote(sys.executable)} -m embedsink"


def _send_one(url: str, keys: Keys) -> tuple[str, ...]:
    now_ms = time.time_ns() // 1_000_000
    return (
        f"key={next(iter(keys.ingest.values()))}",
        f"curl -sS -w '\\n' {url}/api/v1/events \\",
        '  -H "Authorization: Bearer $key" -H "Content-Type: application/json" \\',
        '  -d \'{"source": "svc-embed", "direction": "event", "type": "svc:event:view",',
        f'       "timestamp": {now_ms}, "surface": "dashboard",',
        '       "payload": {"surface": "dashboard", "path": "/dashboards/d_revenue"}}\'',
    )

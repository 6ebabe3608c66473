"""Commands to try in another terminal, ready to paste."""

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple


class Keys(NamedTuple):
    """The demo's keys: ingest keys by origin, a read key and a sync key."""

    ingest: dict[str, str]
    read: str
    sync: str


class Snippet(NamedTuple):
    """A command to paste, and its title."""

    title: str
    lines: tuple[str, ...]


def snippets(url: str, data_folder: Path, keys: Keys) -> list[Snippet]:
    """Return the commands to try, the simplest first."""
    program = _program()
    folder = shlex.quote(str(data_folder))
    first_ingest_key = next(iter(keys.ingest.values()))
    return [
        Snippet("Send one envelope, exactly as it is in event.data", _curl_command(url, first_ingest_key)),
        Snippet(
            "Get a report as CSV",
            (
                f"key={keys.read}",
                'curl -sS -H "Authorization: Bearer $key" \\',
                f"  {url}/api/v1/reports/downloads.csv",
            ),
        ),
        Snippet(
            "Show reports on the command line",
            (f"{program} report views --data {folder}", f"{program} report ai_queries --data {folder}"),
        ),
        Snippet("List the quarantined envelopes with their reasons", (f"{program} quarantine list --data {folder}",)),
        Snippet(
            f"Read reports in a notebook, or in {shlex.quote(sys.executable)}",
            (
                "import embedsink",
                f'sink = embedsink.open("{data_folder}")',
                'sink.report("drilldowns")',
                "sink.sql(\"select query, submitted_at from ai_query where status = 'abandoned'\")",
            ),
        ),
    ]


def _program() -> str:
    """Return the shortest shell command that runs this installation of embedsink."""
    installed_script = Path(sys.executable).with_name("embedsink")
    command_in_path = shutil.which("embedsink")
    if command_in_path and Path(command_in_path).resolve() == installed_script.resolve():
        return "embedsink"
    if installed_script.exists():
        return shlex.quote(str(installed_script))
    return f"{shlex.quote(sys.executable)} -m embedsink"


def _curl_command(url: str, key: str) -> tuple[str, ...]:
    """Return the lines of a curl command that sends one envelope."""
    now_ms = time.time_ns() // 1_000_000
    return (
        f"key={key}",
        f"curl -sS -w '\\n' {url}/api/v1/events \\",
        '  -H "Authorization: Bearer $key" -H "Content-Type: application/json" \\',
        '  -d \'{"source": "svc-embed", "direction": "event", "type": "svc:event:view",',
        f'       "timestamp": {now_ms}, "surface": "dashboard",',
        '       "payload": {"surface": "dashboard", "path": "/dashboards/d_revenue"}}\'',
    )

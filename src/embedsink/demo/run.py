"""`embedsink demo`: a server in a temporary data folder, 17 days of synthetic traffic, reports, then live traffic.

keys ─▶ server with a host page (a child) ─▶ traffic over HTTP ─▶ loaded ─▶ ledger, reports ─▶ live until Ctrl-C
           └─ frames the simulated embed, which a thread serves on another port
"""

import time
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.data_folder import DataFolder
from embedsink.demo.console import Terminal
from embedsink.demo.fixtures import DEPLOYMENTS
from embedsink.demo.ports import HOST, choose_port
from embedsink.demo.send import Browsers, SendCounts
from embedsink.demo.server import DemoServer, published_count
from embedsink.demo.sites import PAGE_PATH, EmbedServer, origins
from embedsink.demo.snippets import Keys, snippets
from embedsink.demo.stop import Stop, Stopped
from embedsink.demo.syncs import record_syncs
from embedsink.demo.tables import REPORT_TABLES, ledger_table, report_table
from embedsink.demo.traffic import SEED, make_live, make_traffic, stamp
from embedsink.errors import EmbedsinkError

LOAD_TIMEOUT_S = 60.0
LOAD_CHECK_INTERVAL_S = 0.1
# Slow enough that an hour of live traffic does not outweigh the days before.
LIVE_EVENTS_PER_S = 1.0
LIVE_CHECK_INTERVAL_S = 1.0


def run(port: int | None = None) -> int:
    """Run the demo until Ctrl-C, SIGTERM or a closed terminal. Return the exit code.

    Args:
        port: the server's port; None for the preferred port, or any free one when that is in use.

    Raises:
        EmbedsinkError: the port is in use, the server did not start, or it ended unexpectedly.
    """
    terminal = Terminal()
    terminal.heading("embedsink demo")
    with Stop() as stop, TemporaryDirectory(prefix="embedsink-demo-", ignore_cleanup_errors=True) as path:
        try:
            _serve(Path(path), choose_port(port), terminal, stop)
        except Stopped:
            terminal.line()
    terminal.done("ended", "The server has stopped, and its data folder is deleted.")
    return 0


def _serve(path: Path, port: int, terminal: Terminal, stop: Stop) -> None:
    with EmbedServer(port + 1, hosts=origins(port)) as embed:
        terminal.link("Open", f"http://{HOST}:{port}{PAGE_PATH}")
        terminal.line("  A customer's page with a simulated embed: use it, and watch the events arrive.", "dim")
        terminal.line("  Meanwhile, this terminal sends the server 17 days of synthetic traffic.", "dim")
        terminal.line()
        keys = _create_keys(path)
        terminal.done("keys", f"{len(keys.ingest)} ingest keys, one for each origin; 1 read key; 1 sync key")
        terminal.done("data folder", str(path))
        with DemoServer(path, port, embed=embed.origin, read_key=keys.read, stop=stop) as server:
            terminal.done("server", f"{server.url}, ready after {server.ready_after_s:.1f} s")
            counts = SendCounts()
            _Demo(server, path, keys, terminal, stop, counts, Browsers(port, keys.ingest, counts)).run()


def _create_keys(path: Path) -> Keys:
    store, now = KeyStore(DataFolder(path).keys), time.time()
    ingest = {}
    for one in DEPLOYMENTS:
        _, ingest[one.origin] = store.create(
            KeyKind.INGEST, deployments=[one.number], origins=[one.origin], label="demo: sends", now=now
        )
    _, read = store.create(KeyKind.READ, label="demo: reads", now=now)
    _, sync = store.create(KeyKind.SYNC, label="demo: records dbt syncs", now=now)
    return Keys(ingest, read, sync)


@dataclass(frozen=True, slots=True)
class _Demo:
    """The demo from a ready server to the end of the live traffic."""

    server: DemoServer
    path: Path
    keys: Keys
    terminal: Terminal
    stop: Stop
    counts: SendCounts
    browsers: Browsers

    def run(self) -> None:
        try:
            now_ms = time.time_ns() // 1_000_000
            record_syncs(self.server.url, self.keys.sync, now_ms)
            self._send_days(now_ms)
            loaded, received_count = self._wait_until_loaded()
            self.terminal.heading("The ledger: one outcome for each envelope")
            self.terminal.show(ledger_table(self.counts, loaded, received_count))
            self._show_reports()
            self._show_snippets()
            self._send_live()
        except (OSError, HTTPException) as error:
            # The server closes its connections shortly before it exits.
            self.server.check(within_s=1.0)
            raise EmbedsinkError(
                f"{self.server.url}: no response ({type(error).__name__} {error}). Is the machine overloaded?"
            ) from error

    def _send_days(self, now_ms: int) -> None:
        traffic = make_traffic(now_ms)
        envelope_count = sum(len(delivery.envelopes) for visit in traffic for delivery in visit)
        started_at = time.monotonic()
        with self.terminal.progress_bar("sending", envelope_count) as show:
            for _ in self.browsers.send_all(traffic, self.stop):
                show(self.counts.sent)
        self.terminal.done(
            "sent",
            f"{self.counts.sent:,} envelopes in {len(traffic):,} visits, all acknowledged, "
            f"in {time.monotonic() - started_at:.1f} s",
        )

    def _wait_until_loaded(self) -> tuple[dict[str, int], int]:
        """Wait for the store and the snapshot. Return the loaded counts by outcome, and the received count."""
        started_at, received_count = time.monotonic(), sum(self.server.received().values())
        with self.terminal.progress_bar("loading", received_count) as show:
            while (count := sum((loaded := self.server.loaded()).values())) < received_count:
                show(count)
                self._pause(started_at)
            show(count)
            while published_count(self.path) < count:
                self._pause(started_at)
        duration_s = time.monotonic() - started_at
        self.terminal.done("loaded", f"all {count:,}, visible in reports and notebooks after {duration_s:.1f} s")
        # The demo page may have sent more since the first count.
        return loaded, min(count, sum(self.server.received().values()))

    def _pause(self, started_at: float) -> None:
        self.server.check()
        if time.monotonic() - started_at > LOAD_TIMEOUT_S:
            raise EmbedsinkError(
                f"loader: has not loaded all envelopes after {LOAD_TIMEOUT_S:.0f} s. Is the disk overloaded?"
            )
        self.stop.pause(LOAD_CHECK_INTERVAL_S)

    def _show_reports(self) -> None:
        self.terminal.heading("Five of the reports")
        described = {one["name"]: one for one in self.server.get_json("/api/v1/reports")}
        for table in REPORT_TABLES:
            rows = self.server.get_json(f"/api/v1/reports/{table.name}.json")
            self.terminal.show(report_table(described[table.name], rows, table))

    def _show_snippets(self) -> None:
        url = self.server.url
        self.terminal.heading("Try it in another terminal while the demo runs")
        self.terminal.item("demo page", url + PAGE_PATH)
        self.terminal.item("dashboards", f"{url}/dashboards/")
        self.terminal.item("inspector", f"{url}/dashboards/inspector")
        self.terminal.item("API docs", f"{url}/docs")
        self.terminal.item("data folder", str(self.path))
        for snippet in snippets(url, self.path, self.keys):
            self.terminal.line()
            self.terminal.line(f"# {snippet.title}", "dim")
            for line in snippet.lines:
                self.terminal.line(line, "green")

    def _send_live(self) -> None:
        rng = Random(SEED)  # noqa: S311 (not secret)
        self.terminal.heading("Live traffic. Ctrl-C stops the demo and deletes its data")
        with self.terminal.live_line() as show:
            check_at, counts = 0.0, ""
            for delivery in make_live(SEED + 1):
                self.browsers.send_visit([stamp(delivery, time.time_ns() // 1_000_000)])
                if time.monotonic() >= check_at:
                    check_at, loaded = time.monotonic() + LIVE_CHECK_INTERVAL_S, self.server.loaded()
                    # Received is read after loaded, so it is never smaller.
                    counts = live_counts(sum(self.server.received().values()), loaded)
                show(counts, str(delivery))
                self.stop.pause(rng.expovariate(LIVE_EVENTS_PER_S))


def live_counts(received_count: int, loaded: dict[str, int]) -> str:
    """Return the ledger in one line: the received envelopes of all senders, by outcome."""
    outcomes = [f"{loaded[outcome]:,} {outcome}" for outcome in ("accepted", "duplicate", "quarantined")]
    loading_count = received_count - sum(loaded.values())
    return f"{received_count:,} received = " + " + ".join([*outcomes, f"{loading_count:,} loading"])

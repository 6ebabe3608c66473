"""`embedsink demo`: a server in a temporary data folder, 17 days of synthetic traffic, reports, then live traffic.

The server runs in a child process and also serves a host page. The page has an iframe with the simulated embed, which
a thread of this process serves on another port.
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
from embedsink.demo.traffic import SEED, make_live, make_traffic, with_timestamp
from embedsink.demo.trends import DAYS
from embedsink.errors import EmbedsinkError

LOAD_TIMEOUT_S = 60.0
LOAD_CHECK_INTERVAL_S = 0.1
# At this rate, about ten minutes of live traffic have as many events as a working day of the generated traffic.
LIVE_EVENTS_PER_S = 1.0
LIVE_CHECK_INTERVAL_S = 1.0


def run(port: int | None = None) -> int:
    """Run the demo until Ctrl-C, SIGTERM or a closed terminal. Return the exit code.

    Args:
        port: the server's port; None for the preferred port, or for a free port if the preferred port is in use.

    Raises:
        EmbedsinkError: the port is in use, or the server did not start or ended unexpectedly.
    """
    terminal = Terminal()
    terminal.heading("embedsink demo")
    with Stop() as stop, TemporaryDirectory(prefix="embedsink-demo-", ignore_cleanup_errors=True) as folder:
        try:
            _run_servers(Path(folder), choose_port(port), terminal, stop)
        except Stopped:
            terminal.line()  # The terminal shows ^C on the current line.
    terminal.done("ended", "The server has stopped, and its data folder is deleted.")
    return 0


def _run_servers(data_folder: Path, port: int, terminal: Terminal, stop: Stop) -> None:
    """Start the server of the embed and the embedsink server, and run the steps of the demo until a stop request."""
    with EmbedServer(port + 1, host_origins=origins(port)) as embed:
        terminal.link("Open", f"http://{HOST}:{port}{PAGE_PATH}")
        terminal.line("  A customer's page with a simulated embed: use it, and watch the events arrive.", "dim")
        terminal.line(f"  Meanwhile, this terminal sends the server {DAYS} days of synthetic traffic.", "dim")
        terminal.line()
        keys = _create_keys(data_folder)
        terminal.done("keys", f"{len(keys.ingest)} ingest keys, one for each origin; 1 read key; 1 sync key")
        terminal.done("data folder", str(data_folder))
        with DemoServer(data_folder, port, embed_origin=embed.origin, read_key=keys.read, stop=stop) as server:
            terminal.done("server", f"{server.url}, ready after {server.ready_after_s:.1f} s")
            counts = SendCounts()
            browsers = Browsers(port, keys.ingest, counts)  # `browsers` updates `counts`.
            _Demo(server, data_folder, keys, terminal, stop, counts, browsers).run()


def _create_keys(data_folder: Path) -> Keys:
    """Create an ingest key for each deployment, a read key and a sync key. Return the tokens of the keys."""
    key_store = KeyStore(DataFolder(data_folder).keys)
    now = time.time()
    ingest_tokens = {}
    for deployment in DEPLOYMENTS:
        _, ingest_tokens[deployment.origin] = key_store.create(
            KeyKind.INGEST,
            deployments=[deployment.number],
            origins=[deployment.origin],
            label="demo: sends",
            now=now,
        )
    _, read_token = key_store.create(KeyKind.READ, label="demo: reads", now=now)
    _, sync_token = key_store.create(KeyKind.SYNC, label="demo: records dbt syncs", now=now)
    return Keys(ingest_tokens, read_token, sync_token)


@dataclass(frozen=True, slots=True)
class _Demo:
    """The steps of the demo after the server is ready."""

    server: DemoServer
    data_folder: Path
    keys: Keys
    terminal: Terminal
    stop: Stop
    counts: SendCounts
    browsers: Browsers

    def run(self) -> None:
        """Send the traffic of the past days, show the reports, and send live traffic until a stop request."""
        try:
            now_ms = time.time_ns() // 1_000_000
            record_syncs(self.server.url, self.keys.sync, now_ms)
            self._send_past_days(now_ms)
            loaded, received_count = self._wait_until_loaded()
            self.terminal.heading("The ledger: one outcome for each envelope")
            self.terminal.show(ledger_table(self.counts, loaded, received_count))
            self._show_reports()
            self._show_snippets()
            self._send_live()
        except (OSError, HTTPException) as error:
            # An exiting server closes its connections shortly before its exit. Its log explains more than this error.
            self.server.raise_if_exited(within_s=1.0)
            raise EmbedsinkError(
                f"{self.server.url}: no response ({type(error).__name__} {error}). Is the machine overloaded?"
            ) from error

    def _send_past_days(self, now_ms: int) -> None:
        """Send the traffic of the days before now, and show the progress."""
        visits = make_traffic(now_ms)  # the deliveries of each visit
        envelope_count = sum(len(delivery.envelopes) for visit in visits for delivery in visit)
        started_at = time.monotonic()
        with self.terminal.progress_bar("sending", envelope_count) as show_count:
            for _ in self.browsers.send_all(visits, self.stop):
                show_count(self.counts.sent)  # `browsers` updates `counts`.
        duration_s = time.monotonic() - started_at
        self.terminal.done(
            "sent",
            f"{self.counts.sent:,} envelopes in {len(visits):,} visits, all acknowledged, in {duration_s:.1f} s",
        )

    def _wait_until_loaded(self) -> tuple[dict[str, int], int]:
        """Wait until the store and the snapshot have all envelopes that the server has received up to now.

        Return the loaded counts by outcome, and the number of envelopes that were received before the call.

        Raises:
            EmbedsinkError: the server exited, or the loader takes too long.
        """
        started_at = time.monotonic()
        expected_count = sum(self.server.received_counts().values())
        loaded = self.server.loaded_counts()
        with self.terminal.progress_bar("loading", expected_count) as show_count:
            while sum(loaded.values()) < expected_count:
                show_count(sum(loaded.values()))
                self._wait_for_loader(started_at)
                loaded = self.server.loaded_counts()
            loaded_count = sum(loaded.values())
            show_count(loaded_count)
            # Notebooks read the snapshot, which is published after the load.
            while published_count(self.data_folder) < loaded_count:
                self._wait_for_loader(started_at)
        duration_s = time.monotonic() - started_at
        self.terminal.done("loaded", f"all {loaded_count:,}, visible in reports and notebooks after {duration_s:.1f} s")
        # Leave out envelopes that the demo page has sent in the meantime: they are not loaded yet.
        # But keep a received count that is too low, so that the ledger shows the difference.
        received_count = sum(self.server.received_counts().values())
        return loaded, min(loaded_count, received_count)

    def _wait_for_loader(self, started_at: float) -> None:
        """Pause between two checks of the loader.

        Raises:
            EmbedsinkError: the server exited, or the loader takes too long.
        """
        self.server.raise_if_exited()
        if time.monotonic() - started_at > LOAD_TIMEOUT_S:
            raise EmbedsinkError(
                f"loader: has not loaded all envelopes after {LOAD_TIMEOUT_S:.0f} s. Is the disk overloaded?"
            )
        self.stop.pause(LOAD_CHECK_INTERVAL_S)

    def _show_reports(self) -> None:
        """Show tables of some reports."""
        self.terminal.heading("Five of the reports")
        descriptions = {report["name"]: report for report in self.server.get_json("/api/v1/reports")}
        for layout in REPORT_TABLES:
            rows = self.server.get_json(f"/api/v1/reports/{layout.name}.json")
            self.terminal.show(report_table(descriptions[layout.name], rows, layout))

    def _show_snippets(self) -> None:
        """Show the URLs of the demo, and commands to try."""
        url = self.server.url
        self.terminal.heading("Try it in another terminal while the demo runs")
        self.terminal.labeled("demo page", url + PAGE_PATH)
        self.terminal.labeled("dashboards", f"{url}/dashboards/")
        self.terminal.labeled("inspector", f"{url}/dashboards/inspector")
        self.terminal.labeled("API docs", f"{url}/docs")
        self.terminal.labeled("data folder", str(self.data_folder))
        for snippet in snippets(url, self.data_folder, self.keys):
            self.terminal.line()
            self.terminal.line(f"# {snippet.title}", "dim")
            for line in snippet.lines:
                self.terminal.line(line, "green")

    def _send_live(self) -> None:
        """Send single events at random times until a stop request. Show the newest event and the counts."""
        rng = Random(SEED)  # noqa: S311 (not secret)
        self.terminal.heading("Live traffic. Press Ctrl-C to stop the demo and delete its data")
        counts_text = ""
        next_check_at = 0.0
        with self.terminal.live_line() as show:
            # The seed differs from that of the past days, so that the visits differ.
            for delivery in make_live(SEED + 1):
                now_ms = time.time_ns() // 1_000_000
                # The timestamps of `make_live` begin at 0.
                self.browsers.send_visit([with_timestamp(delivery, now_ms)])
                if time.monotonic() >= next_check_at:
                    next_check_at = time.monotonic() + LIVE_CHECK_INTERVAL_S
                    # Read the loaded counts first: then the received count is never smaller than their sum.
                    loaded = self.server.loaded_counts()
                    received_count = sum(self.server.received_counts().values())
                    counts_text = live_counts(received_count, loaded)
                show(counts_text, str(delivery))
                self.stop.pause(rng.expovariate(LIVE_EVENTS_PER_S))


def live_counts(received_count: int, loaded: dict[str, int]) -> str:
    """Return a line with the number of received envelopes, and the counts by outcome.

    The last count is of the received envelopes that are not loaded yet.
    """
    outcomes = [f"{loaded[outcome]:,} {outcome}" for outcome in ("accepted", "duplicate", "quarantined")]
    loading_count = received_count - sum(loaded.values())
    return f"{received_count:,} received = " + " + ".join([*outcomes, f"{loading_count:,} loading"])

"""`embedsink demo`: a real server in a temporary data folder, 17 days of made-up traffic, the reports, live traffic.

keys ─▶ server with a host page (a child) ─▶ traffic over HTTP ─▶ all loaded ─▶ ledger, reports ─▶ live, until Ctrl-C
           └─ frames the pretend embed, which a thread serves on another port
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from random import Random

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.data_folder import DataFolder
from embedsink.demo.console import Screen
from embedsink.demo.embed_site import EmbedServer
from embedsink.demo.fixtures import DEPLOYMENTS
from embedsink.demo.send import Account, Browsers
from embedsink.demo.server import HOST, DemoServer, choose_port, published_count
from embedsink.demo.sites import PAGE_PATH, origins
from embedsink.demo.snippets import Keys, snippets
from embedsink.demo.stopping import Stop, Stopped
from embedsink.demo.syncs import record_syncs
from embedsink.demo.tables import SHOWN, ledger_table, report_table
from embedsink.demo.traffic import SEED, at, make_live, make_traffic
from embedsink.errors import EmbedsinkError

LOAD_TIMEOUT_S = 60.0
LOAD_LOOKS_PER_S = 10.0
# A trickle: after an hour it must not yet outweigh the days before.
LIVE_EVENTS_PER_S = 1.0
LIVE_LOOK_EVERY_S = 1.0


def run(port: int | None = None, *, stay: bool = True) -> int:
    """Show embedsink at work until Ctrl-C, SIGTERM or a closed terminal; the exit code.

    Args:
        port: where the server listens; None for the usual port or, when that is taken, any free one.
        stay: go on with live traffic after the tables.

    Raises:
        EmbedsinkError: the port is taken, the server did not start, or it ended by itself.
    """
    screen = Screen()
    screen.headline("embedsink demo")
    with Stop() as stop, _temporary_folder() as path:
        try:
            _show_all(path, choose_port(port), screen, stop, stay=stay)
        except Stopped:
            screen.say()
    screen.done("ended", "The server has stopped and its folder is removed.")
    return 0


def _show_all(path: Path, port: int, screen: Screen, stop: Stop, *, stay: bool) -> None:
    page = f"http://{HOST}:{port}{PAGE_PATH}"
    with EmbedServer(port + 1, hosts=origins(port)) as embed:
        _invite(page, screen)
        keys = _create_keys(path)
        screen.done("keys", f"{len(keys.ingest)} to send, one for each page; 1 to read, 1 for dbt syncs")
        screen.done("data folder", str(path))
        started_at = time.monotonic()
        with DemoServer(path, port, embed=embed.origin, read_key=keys.read, stop=stop) as server:
            screen.done("server", f"{server.url}, ready after {time.monotonic() - started_at:.1f} s")
            _show_traffic(server, path, keys, screen, stop, page=page, stay=stay)


def _invite(page: str, screen: Screen) -> None:
    screen.address("Open", page)
    screen.say("  A customer's page around a pretend embed: use it, and see events arrive.", "dim")
    screen.say("  Here, meanwhile: 17 days of made-up traffic, sent to the same real server.", "dim")
    screen.say()


def _show_traffic(
    server: DemoServer, path: Path, keys: Keys, screen: Screen, stop: Stop, *, page: str, stay: bool
) -> None:
    now_ms, account = time.time_ns() // 1_000_000, Account()
    browsers = Browsers(server.port, keys.ingest, account)
    try:
        record_syncs(server.url, keys.sync, now_ms)
        _send_days(browsers, account, now_ms, screen=screen, stop=stop)
        loaded, received_count = _wait_until_loaded(server, path, screen, stop)
        screen.headline("The ledger: every envelope meets one outcome")
        screen.show(ledger_table(account, loaded, received_count))
        _show_tables(server, screen)
        _show_further(page, server, path, keys, screen)
        if stay:
            _send_live(server, browsers, screen, stop)
    except (OSError, HTTPException) as error:
        # Its connections go before it does.
        server.check(within_s=1.0)
        raise EmbedsinkError(f"{server.url}: {type(error).__name__} {error}. Is the machine very busy?") from error


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="embedsink-demo-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _create_keys(path: Path) -> Keys:
    file, now = KeyStore(DataFolder(path).keys), time.time()
    senders = {
        one.origin: file.create(
            KeyKind.INGEST, deployments=[one.number], origins=[one.origin], label="demo: sends", now=now
        )
        for one in DEPLOYMENTS
    }
    _, read = file.create(KeyKind.READ, label="demo: reads", now=now)
    _, sync = file.create(KeyKind.SYNC, label="demo: records dbt syncs", now=now)
    return Keys({origin: token for origin, (_, token) in senders.items()}, read, sync)


def _send_days(browsers: Browsers, account: Account, now_ms: int, *, screen: Screen, stop: Stop) -> None:
    traffic = make_traffic(now_ms)
    envelope_count = sum(len(delivery.envelopes) for visit in traffic for delivery in visit)
    started_at = time.monotonic()
    browsers.ask_leave()
    with screen.bar("sending", envelope_count) as bar:
        for _ in browsers.send_all(traffic, stop):
            bar.show(account.sent_count)
    duration = time.monotonic() - started_at
    screen.done(
        "sent",
        f"{account.sent_count:,} envelopes of {len(traffic):,} visits, all acknowledged, in {duration:.1f} s",
    )


def _wait_until_loaded(server: DemoServer, path: Path, screen: Screen, stop: Stop) -> tuple[dict[str, int], int]:
    """Until everything that was answered is in the store, and in the snapshot for notebooks; outcomes, and how many."""
    started_at, received_count = time.monotonic(), server.received_count()
    with screen.bar("loading", received_count) as bar:
        while (count := sum((loaded := server.loaded()).values())) < received_count:
            bar.show(count)
            _look_again(server, started_at, stop)
        bar.show(count)
        while published_count(path) < count:
            _look_again(server, started_at, stop)
    duration = time.monotonic() - started_at
    screen.done("loaded", f"all {count:,}, into reports and a notebook's snapshot, {duration:.1f} s later")
    # Somebody may be using the page: what came since the first look is loaded or on its way, and never counted twice.
    return loaded, min(count, server.received_count())


def _look_again(server: DemoServer, started_at: float, stop: Stop) -> None:
    server.check()
    if time.monotonic() - started_at > LOAD_TIMEOUT_S:
        raise EmbedsinkError(f"loader: has not loaded everything after {LOAD_TIMEOUT_S:.0f} s. Is the disk busy?")
    stop.pause(1 / LOAD_LOOKS_PER_S)


def _show_tables(server: DemoServer, screen: Screen) -> None:
    screen.headline("Five reports on it")
    described = {one["name"]: one for one in server.get_json("/api/v1/reports")}
    for shown in SHOWN:
        rows = server.get_json(f"/api/v1/reports/{shown.name}.json")
        screen.show(report_table(described[shown.name], rows, shown))


def _show_further(page: str, server: DemoServer, path: Path, keys: Keys, screen: Screen) -> None:
    screen.headline("Look further, in another terminal while this runs")
    for label, value in {
        "page": page,
        "dashboards": f"{server.url}/dashboards/",
        "inspector": f"{server.url}/dashboards/inspector",
        "API": f"{server.url}/docs",
        "data folder": path,
    }.items():
        screen.point(label, str(value))
    for snippet in snippets(server.url, path, keys):
        screen.say()
        screen.say(f"# {snippet.title}", "dim")
        for line in snippet.lines:
            screen.say(line, "green")


def _send_live(server: DemoServer, browsers: Browsers, screen: Screen, stop: Stop) -> None:
    rng = Random(SEED)  # noqa: S311 (traffic, not secrets)
    screen.headline("Live traffic goes on. Ctrl-C ends it and removes everything")
    with screen.live_line() as line:
        look_at, counts = 0.0, ""
        for delivery in make_live(SEED + 1):
            browsers.send_visit([at(delivery, time.time_ns() // 1_000_000)])
            if time.monotonic() >= look_at:
                look_at, loaded = time.monotonic() + LIVE_LOOK_EVERY_S, server.loaded()
                counts = live_counts(server.received_count(), loaded)
            line.show(counts, str(delivery))
            stop.pause(rng.expovariate(LIVE_EVENTS_PER_S))


def live_counts(received_count: int, loaded: dict[str, int]) -> str:
    """The ledger in one line: what the server has received, from whoever sent it, and the outcome of each so far."""
    # Loaded is asked first, so it never counts what received does not yet.
    outcomes = [f"{loaded[outcome]:,} {outcome}" for outcome in ("accepted", "duplicate", "quarantined")]
    return f"{received_count:,} received = " + " + ".join(
        [*outcomes, f"{received_count - sum(loaded.values()):,} loading"]
    )

"""The demo: realistic traffic, a ledger that adds up, commands that work as printed, and a clean end."""

import os
import re
import signal
import socket
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from io import StringIO
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console

from embedsink.dashboards.labels import NO_COMPARISON
from embedsink.demo.fixtures import DEPLOYMENTS, FAILURES, NEW_TENANT, QUIET_TENANT, UNUSED_DASHBOARD
from embedsink.demo.run import live_counts
from embedsink.demo.send import SendCounts
from embedsink.demo.tables import REPORT_TABLES, ledger_table
from embedsink.demo.traffic import SEED, Delivery, _past_visits, make_live, make_traffic, with_timestamp
from embedsink.demo.trends import DAY_MS, DAYS, Calendar
from embedsink.errors import Refused
from embedsink.protocol.delivery import ParsedDelivery
from embedsink.protocol.messages import ACTIONS, EVENTS
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from tests.support.programs import require
from tests.support.servers import fetch, free_port, wait_until

NOW_MS = 1_763_596_800_000  # Thursday, 20 November 2025
HOUR_MS = 3_600_000
START_SECONDS_MAX = 60.0
END_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def deliveries() -> list[Delivery]:
    return [delivery for visit in make_traffic(NOW_MS) for delivery in visit]


def parsed(delivery: Delivery) -> ParsedDelivery:
    body = delivery.body(NOW_MS, "es_ingest_…")
    if delivery.is_gzipped:
        body = zlib.decompress(body, wbits=31)
    return parse(body, NOW_MS, ndjson=delivery.body_format == "ndjson")


def accepted(deliveries: list[Delivery]) -> Iterator[dict[str, Any]]:
    for delivery in deliveries:
        if delivery.body_format != "truncated":
            yield from parsed(delivery).accepted


def accepted_before(now_ms: int) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Yield each accepted envelope, after its true time and its context."""
    for visit in make_traffic(now_ms):
        for delivery in visit:
            if not (delivery.expected_reasons or delivery.is_retry):
                for envelope in delivery.envelopes:
                    yield envelope["timestamp"] - delivery.skew_ms, delivery.context, envelope


def counted(now_ms: int, *, since_ms: int) -> Counter[str]:
    """Return the counts of seven days by type, surface and status."""
    counts: Counter[str] = Counter()
    for at_ms, _, envelope in accepted_before(now_ms):
        if since_ms <= at_ms < since_ms + 7 * DAY_MS:
            name, payload = envelope["type"].split(":")[2], envelope["payload"]
            counts.update([name, f"{name} {envelope.get('surface')}", payload.get("status", "")])
            counts["exported rows"] += payload.get("rowCount", 0)
            counts[payload.get("message", "")] = 1
    return counts


class TestTraffic:
    def test_traffic_has_every_event_and_action_of_the_catalog(self, deliveries: list[Delivery]) -> None:
        types = {envelope["type"] for envelope in accepted(deliveries)}
        # `x-filter` is for the embeds of other vendors.
        names = set(EVENTS) - {"x-filter"}
        assert types == {f"svc:event:{name}" for name in names} | {f"svc:action:{name}" for name in ACTIONS}

    def test_traffic_has_every_surface_and_many_sessions(self, deliveries: list[Delivery]) -> None:
        assert {envelope.get("surface") for envelope in accepted(deliveries)} == {"dashboard", "app", "chat", None}
        contexts = [delivery.context for delivery in deliveries]
        for name, least in {"deployment": 3, "tenant": 5, "viewer": 20, "session": 200}.items():
            assert len({context[name] for context in contexts if name in context}) >= least, name

    @pytest.mark.parametrize("days", [7, DAYS])
    def test_traffic_has_thousands_of_envelopes_of_the_last_days(self, days: int) -> None:
        happened = [
            envelope["timestamp"] - delivery.skew_ms
            for visit in make_traffic(NOW_MS, days=days)
            for delivery in visit
            for envelope in delivery.envelopes
            if not delivery.expected_reasons
        ]
        assert 3_000 < len(happened) < 10_000
        assert NOW_MS - days * DAY_MS <= min(happened) < NOW_MS - (days - 1) * DAY_MS
        assert NOW_MS - DAY_MS < max(happened) <= NOW_MS

    def test_traffic_has_every_format_and_header(self, deliveries: list[Delivery]) -> None:
        assert {delivery.body_format for delivery in deliveries} == {
            "delivery",
            "envelope",
            "array",
            "ndjson",
            "truncated",
        }
        assert {delivery.media_type.partition(";")[0] for delivery in deliveries} == {
            "application/json",
            "text/plain",
            "application/x-ndjson",
        }
        for trait in ("is_gzipped", "is_beacon", "is_retry", "skew_ms", "lost"):
            assert any(getattr(delivery, trait) for delivery in deliveries), trait

    def test_envelopes_are_rejected_for_exactly_the_expected_reasons(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            if delivery.body_format == "truncated":
                with pytest.raises(Refused) as caught:
                    parsed(delivery)
                assert delivery.expected_reasons == (caught.value.reason,)
            else:
                response_reasons = tuple(
                    reason for reason in delivery.expected_reasons if reason is not Reason.ID_CONFLICT
                )
                assert tuple(rejection.reason for rejection in parsed(delivery).rejected) == response_reasons

    def test_traffic_has_at_least_ten_reasons(self, deliveries: list[Delivery]) -> None:
        assert len({reason for delivery in deliveries for reason in delivery.expected_reasons}) >= 10

    def test_ai_questions_have_every_outcome(self, deliveries: list[Delivery]) -> None:
        stages = Counter(
            envelope["payload"]["status"]
            for envelope in accepted(deliveries)
            if envelope["type"] == "svc:event:ai-query"
        )
        assert stages["completed"] > 0
        assert stages["error"] > 0
        assert stages["submitted"] > stages["completed"] + stages["error"], "some questions are never answered"

    def test_a_navigation_sends_navigate_and_view(self, deliveries: list[Delivery]) -> None:
        bodies = [delivery for delivery in deliveries if delivery.body_format == "array"]
        types = [[envelope["type"].partition(":event:")[2] for envelope in delivery.envelopes] for delivery in bodies]
        followers = {after for visit in types for before, after in pairwise(visit) if before == "navigate"}
        assert followers == {"view"}

    def test_downloads_have_every_format(self, deliveries: list[Delivery]) -> None:
        formats = {
            envelope["payload"].get("format")
            for envelope in accepted(deliveries)
            if envelope["type"].endswith(":download")
        }
        assert formats == {"csv", "xlsx", "png", "pdf"}

    @pytest.mark.parametrize("day", range(7))
    def test_the_last_seven_days_differ_moderately_from_the_seven_before(self, day: int) -> None:
        """On any weekday, most counts grow, some shrink, and none doubles. The newest sync causes a new error."""
        now_ms = NOW_MS + day * DAY_MS + 9 * HOUR_MS
        week, before = (counted(now_ms, since_ms=now_ms - days * DAY_MS) for days in (7, 14))
        grown = {name: week[name] / before[name] - 1 for name in before}
        assert 0 < grown["view"] < 0.15
        assert 0 < grown["view dashboard"] < 0.25
        assert 0 < grown["view chat"] < 0.5
        assert -0.25 < grown["view app"] < 0
        assert -0.75 < grown["error"] < -0.25
        assert 0.3 < grown["exported rows"] < 1
        messages = {failure.message for failure in FAILURES}
        assert messages - set(before) == {one.message for one in FAILURES if one.newest_sync == "causes"}
        assert messages <= set(week)
        assert 0.05 < week["completed"] / week["submitted"] - before["completed"] / before["submitted"] < 0.2

    @pytest.mark.parametrize("day", range(7))
    def test_the_newest_syncs_reduce_errors_on_any_weekday(self, day: int) -> None:
        now_ms = NOW_MS + day * DAY_MS + 9 * HOUR_MS
        synced_ms = Calendar(now_ms).synced_at.timestamp() * 1_000
        counts: Counter[tuple[int, bool, str]] = Counter()
        for visit in _past_visits(now_ms, SEED, DAYS):
            for envelope in visit.envelopes:
                if abs(envelope["timestamp"] - synced_ms) < DAY_MS:
                    is_after = envelope["timestamp"] >= synced_ms
                    counts[visit.deployment.number, is_after, envelope["type"].rpartition(":")[2]] += 1
        for deployment in DEPLOYMENTS[:2]:
            before, after = (
                counts[deployment.number, is_after, "error"] / counts[deployment.number, is_after, "view"]
                for is_after in (False, True)
            )
            assert after < before, deployment

    @pytest.mark.parametrize("day", range(7))
    def test_a_tenant_and_a_dashboard_are_quiet_and_one_export_is_unusual(self, day: int) -> None:
        now_ms = NOW_MS + day * DAY_MS + 9 * HOUR_MS
        sent = list(accepted_before(now_ms))
        for quiet in (f"u_{QUIET_TENANT}_", UNUSED_DASHBOARD.public_id):
            ages = [(now_ms - at_ms) / DAY_MS for at_ms, context, envelope in sent if quiet in str((context, envelope))]
            assert min(ages) > 14, quiet
            assert max(ages) <= DAYS
        new = [(now_ms - at_ms) / DAY_MS for at_ms, context, _ in sent if context.get("tenant") == NEW_TENANT]
        assert 0 < max(new) < 7
        most, next_most = sorted((envelope["payload"].get("rowCount", 0) for _, _, envelope in sent), reverse=True)[:2]
        assert most > 5 * next_most

    def test_the_same_seed_gives_the_same_traffic(self) -> None:
        bodies = [
            [delivery.body(NOW_MS, "key") for visit in make_traffic(NOW_MS, seed=seed, days=2) for delivery in visit]
            for seed in (1, 1, 2)
        ]
        assert bodies[0] == bodies[1]
        assert bodies[0] != bodies[2]

    def test_live_traffic_is_endless_and_current(self) -> None:
        for delivery in islice(make_live(SEED), 2_000):
            now = parsed(with_timestamp(delivery, NOW_MS))
            assert [rejection.reason for rejection in now.rejected] == list(delivery.expected_reasons)
            assert {envelope["timestamp"] for envelope in now.accepted} <= {NOW_MS}


class TestLedger:
    @pytest.mark.parametrize(
        ("loaded_count", "others_count", "mark"),
        [(10, 0, "✓ sum"), (12, 2, "✓ sum"), (11, 2, "✗ sum"), (13, 2, "✗ sum")],
    )
    def test_the_sum_includes_other_senders(self, loaded_count: int, others_count: int, mark: str) -> None:
        loaded = {"accepted": loaded_count, "duplicate": 0, "quarantined": 0}
        console = Console(width=80, record=True, file=StringIO())
        console.print(ledger_table(SendCounts(sent=10, accepted=10), loaded, 10 + others_count))
        text = console.export_text()
        assert mark in text
        assert ("other senders" in text) == (others_count > 0)

    @pytest.mark.parametrize(("others_count", "reason"), [(0, "id_conflict"), (1, "other reasons")])
    def test_rejections_of_other_senders_are_other_reasons(self, others_count: int, reason: str) -> None:
        loaded = {"accepted": 9, "duplicate": 0, "quarantined": 1 + others_count}
        console = Console(width=80, record=True, file=StringIO())
        console.print(ledger_table(SendCounts(sent=10, accepted=9), loaded, 10 + others_count))
        text = console.export_text()
        assert re.search(rf"^ +{reason} +{1 + others_count} ", text, re.M), text


class TestLiveCounts:
    def test_the_live_line_is_the_ledger_within_80_columns(self) -> None:
        line = live_counts(12_345, {"accepted": 11_000, "duplicate": 1_234, "quarantined": 99})
        assert line == "12,345 received = 11,000 accepted + 1,234 duplicate + 99 quarantined + 12 loading"
        assert len(f"  ● {live_counts(6_110, {'accepted': 5_780, 'duplicate': 280, 'quarantined': 44})}") <= 80


class Demo(NamedTuple):
    """A demo whose stdout and stderr go to files."""

    child: "subprocess.Popen[bytes]"
    port: int
    stdout: Path
    stderr: Path

    def output(self) -> str:
        return self.stdout.read_text()

    @property
    def data_folder(self) -> Path:
        match = re.search(r"data folder +(\S+)", self.output())
        assert match, self.output() + self.stderr.read_text()
        return Path(match[1])

    def read(self, path: str) -> Any:
        """Return the JSON of an API path, requested with the printed read key."""
        key = re.search(r"^key=(es_read_\w+)", self.output(), re.M)
        assert key, self.output()
        return fetch(f"http://127.0.0.1:{self.port}/api/v1/{path}", key=key[1]).json()

    def end(self, number: signal.Signals) -> int:
        self.child.send_signal(number)
        return self.child.wait(END_SECONDS_MAX)


Begin = Callable[[], Demo]


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begin]:
    """Return a function that starts a demo on a free port. Every demo ends with the module."""
    begun: list[Demo] = []

    def begin() -> Demo:
        folder, port = tmp_path_factory.mktemp("demo"), free_port()
        stdout, stderr = folder / "stdout", folder / "stderr"
        with stdout.open("wb") as out, stderr.open("wb") as err:
            child = subprocess.Popen(
                [sys.executable, "-m", "embedsink", "demo", "--port", str(port)],
                stdout=out,
                stderr=err,
                env=os.environ | {"PYTHONUTF8": "1"},
            )
        begun.append(Demo(child, port, stdout, stderr))
        return begun[-1]

    yield begin
    for demo in begun:
        demo.end(signal.SIGTERM)


def wait_for(demo: Demo, words: str) -> None:
    def is_printed() -> bool:
        assert demo.child.poll() is None, demo.output() + demo.stderr.read_text()
        return words in demo.output()

    wait_until(is_printed, description=f"the demo prints {words!r}", timeout_s=START_SECONDS_MAX)


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def assert_ended_cleanly(demo: Demo, folder: Path) -> None:
    assert demo.stderr.read_text() == ""
    assert "ended" in demo.output().splitlines()[-1]
    assert not folder.exists()
    assert not is_listening(demo.port)


@pytest.fixture(scope="module")
def demo(begin: Begin) -> Demo:
    demo = begin()
    wait_for(demo, "Live traffic")
    return demo


@pytest.mark.slow
@pytest.mark.server
class TestRun:
    """All tests share one demo, and the last one stops it."""

    def test_the_ledger_adds_up(self, demo: Demo) -> None:
        counts = {
            label: int(count.replace(",", ""))
            for label, count in re.findall(r"^ +(\w+) +([\d,]+)  ", demo.output(), re.M)
        }
        expected = Counter(
            str(reason) for visit in make_traffic(NOW_MS) for delivery in visit for reason in delivery.expected_reasons
        )
        assert {reason: counts[reason] for reason in expected} == expected
        assert counts["quarantined"] == expected.total()
        assert counts["duplicate"] > 0
        assert counts["sent"] == counts["accepted"] + counts["duplicate"] + counts["quarantined"]
        assert "✓ sum" in demo.output()

    def test_the_demo_prints_every_report_within_80_columns(self, demo: Demo) -> None:
        for title in ("Views", "Downloads", "Drilldowns", "AI queries", "Error rates"):
            assert re.search(rf"^  {title}  ·  6 of \d+ rows", demo.output(), re.M), title
        assert len(REPORT_TABLES) == 5
        tables, _, commands = demo.output().partition("Try it")
        assert max(map(len, tables.splitlines())) <= 80
        # Only lines with the path of a program may be longer.
        assert max(len(line) for line in commands.splitlines() if "/bin/" not in line) <= 80

    def test_every_number_has_its_change_from_the_seven_days_before(self, demo: Demo) -> None:
        changes_by_chart = {
            (listed["name"], name): shown["change"]
            for listed in demo.read("dashboards")
            for section in demo.read(f"dashboards/{listed['name']}")["sections"]
            for name, shown in demo.read(f"dashboards/{listed['name']}/sections/{section['id']}")["charts"].items()
            if shown.get("change")
        }
        assert len(changes_by_chart) > 25
        assert NO_COMPARISON not in changes_by_chart.values()
        changes = [change for change in changes_by_chart.values() if isinstance(change, dict)]
        assert {change["direction"] for change in changes} == {"up", "down"}
        assert {change["is_good"] for change in changes} == {True, False, None}
        assert {change["format"] for change in changes} == {"share", "points"}, "no change is shown as a factor"

    def test_only_the_unused_dashboard_is_listed_as_unused(self, demo: Demo) -> None:
        unused = demo.read("dashboards/content/sections/unused")["charts"]["unused"]
        column = unused["columns"].index("public_id")
        assert {row[column] for row in unused["rows"]} == {UNUSED_DASHBOARD.public_id}

    def test_errors_fell_after_the_newest_syncs(self, demo: Demo) -> None:
        syncs = demo.read("reports/sync_impact.json")
        assert len(syncs) == 4
        for sync in syncs[-2:]:
            assert sync["errors_per_view_after"] < sync["errors_per_view_before"]

    def test_the_printed_curl_sends_an_envelope(self, demo: Demo) -> None:
        require("curl")
        assert shell(printed(demo, "Send one envelope")) == '{"accepted":1,"rejected":[]}\n'

    def test_the_printed_curl_gets_a_csv(self, demo: Demo) -> None:
        require("curl")
        lines = shell(printed(demo, "Get a report as CSV")).splitlines()
        assert lines[0].startswith("period_start,deployment,surface,format,target")
        assert len(lines) > 20

    def test_the_printed_commands_show_reports(self, demo: Demo) -> None:
        output = shell(printed(demo, "Show reports on the command line"))
        assert "view_count" in output
        assert "submitted_count" in output

    def test_the_printed_command_shows_the_quarantine(self, demo: Demo) -> None:
        assert "not one of csv, xlsx, png, pdf" in shell(printed(demo, "List the quarantined envelopes"))

    def test_the_printed_notebook_lines_work(self, demo: Demo) -> None:
        *before, report, sql = printed(demo, "Read reports in a notebook").splitlines()
        code = "\n".join([*before, f"assert len({report}) > 10", f"assert len({sql}) > 10"])
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr

    def test_the_first_url_is_the_demo_page(self, demo: Demo) -> None:
        address = re.findall(r"http://\S+", demo.output())[0]
        assert address == f"http://127.0.0.1:{demo.port}/demo/"
        assert b"<h1>" in fetch(address).body
        assert fetch(f"http://127.0.0.1:{demo.port}/").body == fetch(address).body, (
            "the root URL redirects to the demo page"
        )
        assert fetch(f"{embed_of(demo)}/embed/dashboard/d_orders").status == 200

    def test_ctrl_c_stops_both_servers_and_deletes_the_folder(self, demo: Demo) -> None:
        folder = demo.data_folder
        embed_port = int(embed_of(demo).rpartition(":")[2])
        assert is_listening(demo.port)
        assert is_listening(embed_port)
        assert demo.end(signal.SIGINT) == 0
        assert_ended_cleanly(demo, folder)
        assert not is_listening(embed_port)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("words", ["data folder", "ready after", "sent  "])
def test_sigterm_stops_the_demo_at_any_step(begin: Begin, words: str) -> None:
    demo = begin()
    wait_for(demo, words)
    folder = demo.data_folder
    assert demo.end(signal.SIGTERM) == 0
    assert_ended_cleanly(demo, folder)


@pytest.mark.slow
@pytest.mark.server
def test_a_killed_server_ends_the_demo_with_an_error_and_deletes_the_folder(begin: Begin) -> None:
    demo = begin()
    wait_for(demo, "Live traffic")
    folder = demo.data_folder
    os.kill(int((folder / "lock").read_text()), signal.SIGKILL)
    assert demo.child.wait(END_SECONDS_MAX) == 1
    assert demo.stderr.read_text().startswith("server: ended with exit code -9.")
    assert "Traceback" not in demo.stderr.read_text()
    assert not folder.exists()


@pytest.mark.slow
def test_a_port_in_use_is_an_error_that_names_it(begin: Begin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = subprocess.run(
            [sys.executable, "-m", "embedsink", "demo", "--port", str(port)], capture_output=True, text=True, timeout=30
        )
    assert result.returncode == 1
    assert f"--port {port}: is in use. Choose another, or omit --port to use a free one." in result.stderr
    assert "Traceback" not in result.stderr


def embed_of(demo: Demo) -> str:
    """Return the origin of the simulated embed."""
    origin: str = fetch(f"http://127.0.0.1:{demo.port}/demo/host.json").json()["embed"]
    return origin


def printed(demo: Demo, title: str) -> str:
    """Return the printed lines from a title to the next blank line."""
    match = re.search(rf"^# {title}.*\n((?:.+\n)+)", demo.output(), re.M)
    assert match, demo.output()
    return match[1]


def shell(command: str) -> str:
    """Return the output of a command in a plain shell, in another folder."""
    result = subprocess.run(["sh", "-ec", command], cwd="/", capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, command + result.stderr
    return result.stdout

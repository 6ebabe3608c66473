"""Logs: JSON lines of limited length at a limited rate."""

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from embedsink.auth.keys import KeyKind
from embedsink.auth.tokens import new_token
from embedsink.json_logging import (
    BURST_LINES,
    LINE_CHARACTERS_MAX,
    LINES_PER_S,
    SUMMARY_INTERVAL_S,
    TRACEBACK_CHARACTERS_MAX,
    VALUE_CHARACTERS_MAX,
    JsonLines,
    LineLimit,
)
from tests.support.servers import RunningServer, running_server, wait_until


def line_of(event: str = "refused", *, error: BaseException | None = None, **extra: Any) -> str:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("embedsink.http", logging.WARNING, __file__, 1, event, None, exc_info)
    vars(record).update(extra)
    return JsonLines().format(record)


def test_a_long_value_is_shortened_with_an_ellipsis() -> None:
    line = json.loads(line_of(path="/" + "x" * 60_000, status=404, key_id=None))
    assert line["path"] == "/" + "x" * (VALUE_CHARACTERS_MAX - 2) + "…"
    assert (line["status"], line["key_id"]) == (404, None)


def test_a_short_value_of_any_type_is_unchanged() -> None:
    addresses = [["127.0.0.1", 8321], ["::1", 8321]]
    line = json.loads(line_of(addresses=addresses, detail="x" * VALUE_CHARACTERS_MAX, share=0.5))
    assert line["addresses"] == addresses
    assert line["detail"] == "x" * VALUE_CHARACTERS_MAX
    assert json.loads(line_of(addresses=addresses * 1_000))["addresses"].endswith("…")


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", "\x00", "\n"])
def test_a_line_has_a_length_limit(character: str) -> None:
    values: Any = {f"value{number}": character * 60_000 for number in range(8)}
    line = line_of(event=character * 60_000, **values)
    assert len(line) <= LINE_CHARACTERS_MAX
    assert line.isprintable()
    assert json.loads(line)["level"] == "warning"


def test_a_traceback_has_a_length_limit_and_keeps_both_ends() -> None:
    try:
        raise ValueError("x" * 100_000 + " at the end")
    except ValueError as error:
        line = json.loads(line_of("bug", error=error))
    assert line["traceback"].startswith("Traceback (most recent call last)")
    assert line["traceback"].endswith(" at the end")
    assert len(line["traceback"]) <= TRACEBACK_CHARACTERS_MAX + len("\n…\n")


@pytest.mark.parametrize("before", range(VALUE_CHARACTERS_MAX - 70, VALUE_CHARACTERS_MAX + 10, 7))
@pytest.mark.parametrize("kind", KeyKind)
def test_a_shortened_value_contains_no_part_of_a_key(kind: KeyKind, before: int) -> None:
    key = new_token(kind)
    assert key[12:20] not in line_of(path="/" * before + key + "/" * 1_000)


def passed(limit: LineLimit, event: str, count: int) -> int:
    records = (logging.makeLogRecord({"msg": event}) for _ in range(count))
    return sum(map(limit.filter, records))


@pytest.fixture
def limit() -> Iterator[LineLimit]:
    made = LineLimit()
    yield made
    if made._summary_timer is not None:
        made._summary_timer.cancel()
        made._summary_timer.join()


def test_lines_beyond_the_rate_limit_are_omitted_but_other_events_are_not(
    limit: LineLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr("embedsink.json_logging.time.monotonic", lambda: now_s[0])
    assert passed(limit, "refused", 1_000) == BURST_LINES
    assert passed(limit, "journal_failed", 1) == 1
    now_s[0] = 2.0
    assert passed(limit, "refused", 1_000) == 2 * LINES_PER_S


def test_a_line_reports_the_number_of_omitted_lines(limit: LineLimit, caplog: pytest.LogCaptureFixture) -> None:
    written = passed(limit, "refused", 1_000)
    wait_until(lambda: bool(caplog.records), description="the summary is logged", timeout_s=SUMMARY_INTERVAL_S + 10)
    [line] = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert (line["event"], line["of"], line["count"]) == ("lines_skipped", "refused", 1_000 - written)


@pytest.mark.server
def test_refused_requests_are_all_counted_but_do_not_fill_the_disk(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        address = urlsplit(server.url)
        for _ in range(300):
            assert server.get("/" + "x" * 15_000).status == 404
        for _ in range(200):
            with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
                connection.sendall(b"\0 no HTTP\r\n\r\n")
                assert connection.recv(65_536).startswith(b"HTTP/1.1 400")
        assert count_of(server, 'embedsink_refused_requests_total{reason="not_found"}') == 300
        assert count_of(server, "embedsink_unreadable_requests_total") == 200
        wait_until(lambda: logged(server, "refused") == 300, description="300 refusals are logged or counted")
        wait_until(lambda: logged(server, "not_http") == 200, description="200 other events are logged or counted")
        assert server.log.stat().st_size < 300_000


def count_of(server: RunningServer, metric: str) -> float:
    lines = server.get("/metrics").body.decode().splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric))


def logged(server: RunningServer, event: str) -> int:
    """Return the number of events that have a line or are counted in one."""
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    counted: list[int] = [line["count"] for line in lines if line.get("of") == event]
    written = [line for line in lines if line["event"] == event]
    return len(written) + sum(counted)

"""`/healthz`, `/readyz` and `/metrics`."""

import os
import time
from pathlib import Path

import pytest

import embedsink.journal.open_segment
from embedsink.journal.segment import trailer
from embedsink.loader.loader import Loader
from tests.support.app import Server, open_server, problem
from tests.support.envelopes import view
from tests.support.servers import wait_until


def metric(server: Server, name: str) -> float:
    response = server.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    [line] = [line for line in response.text.splitlines() if line.startswith(name + " ")]
    return float(line.split()[-1])


def test_healthz_answers_ok(server: Server) -> None:
    response = server.get("/healthz")
    assert (response.status_code, response.text) == (200, "ok\n")


def test_readyz_writes_to_the_disk(server: Server) -> None:
    before = metric(server, "embedsink_journal_groups_total")
    response = server.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"ready": True, "problems": [], "delays": []})
    assert metric(server, "embedsink_journal_groups_total") == before + 1


def test_readyz_names_a_damaged_segment(tmp_path: Path) -> None:
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "000000000001-00000000.ndjson").write_bytes(b"damaged")
    with open_server(tmp_path) as server:
        response = server.get("/readyz")
        assert (response.status_code, problem(response)) == (503, "not_ready")
        assert response.json()["ready"] is False
        assert "000000000001-00000000.ndjson" in response.json()["problems"][0]
        assert server.post(view(), key=server.key()).status_code == 202


def test_readyz_does_not_wait_for_a_hung_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_server(tmp_path, journal_timeout_s=0.1) as server, monkeypatch.context() as patch:
        patch.setattr(embedsink.journal.open_segment, "fdatasync", lambda _: time.sleep(1))
        started_at = time.perf_counter()
        response = server.get("/readyz")
        assert time.perf_counter() - started_at < 0.9
        assert problem(response) == "not_ready"
        assert "a write takes more than" in response.json()["detail"]


def test_readyz_reports_a_failed_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with open_server(tmp_path) as server:
        monkeypatch.setattr(embedsink.journal.open_segment, "fdatasync", fail)
        for _ in range(2):
            assert problem(server.get("/readyz")) == "not_ready"


def test_readyz_reports_a_stopped_loader_while_ingest_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def end(*_: object, **__: object) -> None:
        raise SystemExit

    monkeypatch.setattr(Loader, "run_once", end)
    with open_server(tmp_path) as server:
        wait_until(lambda: server.get("/readyz").status_code == 503, description="the problem is reported")
        [trouble] = server.get("/readyz").json()["problems"]
        assert trouble.startswith("loader: stopped because of a bug (SystemExit); see the log.")
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == ["bug"]
        assert server.post(view(), key=server.key()).status_code == 202
    monkeypatch.undo()
    with open_server(tmp_path) as server:
        assert server.rows("/api/v1/reports/views", key=server.key("read"))[0]["view_count"] == 1


def test_metrics_count_each_outcome(tmp_path: Path) -> None:
    with open_server(tmp_path) as server:
        key = server.key()
        server.post([view(), view(), 1], key=key)
        server.post(b"{", key=key)
        server.post(view(), key="es_ingest_wrong")
        assert metric(server, 'embedsink_envelopes_total{outcome="accepted"}') == 2
        assert metric(server, 'embedsink_envelopes_total{outcome="quarantined"}') == 2
        assert metric(server, 'embedsink_refused_requests_total{reason="bad_credential"}') == 1
        assert metric(server, 'embedsink_refused_requests_total{reason="not_json"}') == 1


def test_metrics_read_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "journal").mkdir()
    for number in (1, 2, 3):
        (tmp_path / "journal" / f"{number:012d}-00000000.ndjson").write_bytes(trailer(b""))

    def none(*_: object) -> None:
        raise AssertionError("looks into a folder")

    with open_server(tmp_path, snapshot_interval_s=3_600) as server, monkeypatch.context() as patch:
        for look in ("glob", "iterdir", "stat"):
            patch.setattr(Path, look, none)
        patch.setattr(os, "scandir", none)
        assert metric(server, "embedsink_journal_segments") > 0


def test_metrics_contain_no_content_of_events(server: Server) -> None:
    secret = "s_3cr3t"
    server.post({"context": {"tenant": secret}, "events": [view({"title": secret})]}, key=server.key(label=secret))
    assert secret not in server.get("/metrics").text

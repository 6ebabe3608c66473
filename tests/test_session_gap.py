"""The setting for the longest gap that counts as time spent, on a server, in a command and in Python."""

import csv
import io
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import embedsink
from embedsink.cli.app import main
from tests.http.test_report_response import get, send
from tests.support.app import Server, open_server
from tests.support.envelopes import view

FORTY_MINUTES_S = 2_400.0
SETTING = "EMBEDSINK_SESSION_GAP_MINUTES"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with a session of two events forty minutes apart. Its server counts such a gap."""
    data = tmp_path_factory.mktemp("gap") / "data"
    with open_server(data, session_gap_minutes=45, segment_seal_s=0.01) as server:
        send(server, [view(timestamp=1_763_596_800_000 + minutes * 60_000) for minutes in (0, 40)])
        assert durations(get(server, "reports/sessions.json").json()) == [FORTY_MINUTES_S]
        assert summary_durations(server) == [FORTY_MINUTES_S]
    return data


def durations(rows: list[dict[str, Any]]) -> list[float]:
    return [row["duration_s"] for row in rows]


def summary_durations(server: Server) -> list[float]:
    with ZipFile(io.BytesIO(get(server, "summary.zip").content)) as summary:
        text = summary.read("sessions.csv").decode()
    return [float(row["duration_s"]) for row in csv.DictReader(io.StringIO(text))]


@pytest.mark.parametrize(("minutes", "time_spent_s"), [(None, 0.0), ("39", 0.0), ("40", FORTY_MINUTES_S)])
def test_a_folder_is_read_with_the_setting_of_the_reading_process(
    data: Path,
    minutes: str | None,
    time_spent_s: float,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if minutes is not None:
        monkeypatch.setenv(SETTING, minutes)
    opened = embedsink.open(data)
    assert list(opened.report("sessions")["duration_s"]) == [time_spent_s]
    assert list(opened.sql("select duration_s from sessions")["duration_s"]) == [time_spent_s]
    monkeypatch.setattr(sys, "argv", ["embedsink", "report", "sessions", "--format", "csv", "--data", str(data)])
    with pytest.raises(SystemExit):
        main()
    [row] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(row["duration_s"]) == time_spent_s

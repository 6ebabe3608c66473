"""`dashboards/explore.ipynb` runs from top to bottom while a server loads events, and every chart in it has data."""

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import time_ns
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

from embedsink.demo.fixtures import ORIGINS
from embedsink.demo.send import Browsers, SendCounts
from embedsink.demo.server import published_count
from embedsink.demo.traffic import SEED, make_live, make_traffic, with_timestamp
from tests.support.paths import ROOT
from tests.support.servers import RunningServer, running_server, wait_until

NOTEBOOK = ROOT / "dashboards" / "explore.ipynb"
CELL_TIMEOUT_S = 60
LOAD_TIMEOUT_S = 60.0
LIVE_PAUSE_S = 0.05
CHARTS = {
    "views_chart",
    "heatmap_chart",
    "dashboards_chart",
    "reach_chart",
    "drilldowns_chart",
    "status_chart",
    "latency_chart",
    "answers_chart",
    "error_rates_chart",
    "errors_chart",
    "downloads_chart",
    "completeness_chart",
    "rejections_chart",
    "next_events_chart",
}
# Code for the kernel after the notebook has run. It prints the type of each column of each frame.
PROBE = """
import json
frames = {name: frame for name, frame in globals().items() if isinstance(frame, pd.DataFrame) and name[0] != "_"}
print(json.dumps({name: frame.dtypes.astype(str).to_dict() for name, frame in frames.items()}))
"""
# Below this contrast (WCAG 2.2, 1.4.11) a bar is hard to see.
CONTRAST_MIN = 3.0
PAGES = {"light": "#ffffff", "dark": "#111111"}


class ExecutedNotebook(NamedTuple):
    """The executed notebook, and the columns of its frames."""

    cells: list[Any]
    frames: dict[str, dict[str, str]]

    def outputs(self) -> Iterator[Any]:
        for cell in self.cells:
            yield from cell.get("outputs", [])

    def charts(self) -> dict[str, Any]:
        """Return the Vega-Lite spec of each displayed chart, by the name in the last line of its cell."""
        charts_by_name = {}
        for cell in self.cells:
            for output in cell.get("outputs", []):
                html = output.get("data", {}).get("text/html", "")
                if "vegaEmbed" in html:
                    spec, _ = json.JSONDecoder().raw_decode(html, html.rindex("})({") + len("})("))
                    charts_by_name[cell.source.splitlines()[-1]] = spec
        return charts_by_name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Start a server with a week of the demo's traffic in its snapshot."""
    with running_server(tmp_path_factory.mktemp("notebook") / "data", EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server:
        counts = SendCounts()
        send = browsers(server, counts).send_visit
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(send, make_traffic(time_ns() // 1_000_000, days=7)))
        wait_until(
            lambda: published_count(server.data) >= counts.sent,
            description="the week is in the snapshot",
            timeout_s=LOAD_TIMEOUT_S,
        )
        yield server


def browsers(server: RunningServer, counts: SendCounts) -> Browsers:
    port = urlsplit(server.url).port
    assert port is not None
    return Browsers(port, dict.fromkeys(ORIGINS, server.key("ingest")), counts)


@contextmanager
def live_traffic(server: RunningServer) -> Iterator[SendCounts]:
    """Keep sending events, so that the server replaces the snapshot while the notebook reads it."""
    counts, ended = SendCounts(), threading.Event()
    send = browsers(server, counts).send_visit

    def send_on() -> None:
        for delivery in make_live(SEED):
            send([with_timestamp(delivery, time_ns() // 1_000_000)])
            if ended.wait(LIVE_PAUSE_S):
                return

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_on)
        try:
            yield counts
        finally:
            ended.set()
            sending.result()


def run(data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ExecutedNotebook:
    """Run the notebook on a data folder, with Jupyter's own files in `folder`."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    monkeypatch.setenv("EMBEDSINK_DATA", str(data))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    cells = list(notebook.cells)
    notebook.cells.append(new_code_cell(PROBE))
    # Raises CellExecutionError with the traceback if a cell fails.
    NotebookClient(notebook, timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(folder)}}).execute()
    return ExecutedNotebook(cells, json.loads(notebook.cells[-1].outputs[0].text))


@pytest.fixture(scope="module")
def executed(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> ExecutedNotebook:
    before = published_count(server.data)
    with pytest.MonkeyPatch.context() as monkeypatch, live_traffic(server) as counts:
        executed = run(server.data, tmp_path_factory.mktemp("jupyter"), monkeypatch)
        assert server.get("/readyz").status == 200
    assert counts.sent > 0
    wait_until(lambda: published_count(server.data) >= before + counts.sent, description="what came meanwhile is kept")
    return executed


def units(spec: Any, inherited: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each mark of a chart: the name of its data, and its encoding."""
    rows = spec.get("data", {}).get("name", inherited)
    parts = [*spec.get("hconcat", []), *spec.get("vconcat", []), *spec.get("layer", [])]
    if isinstance(spec.get("spec"), dict):
        parts.append(spec["spec"])
    for part in parts:
        yield from units(part, rows)
    if "mark" in spec:
        assert rows is not None
        yield rows, spec["encoding"]


def fields(encoding: dict[str, Any]) -> set[str]:
    """Return the columns that a mark shows. The chart itself computes `stack_order`."""
    channels = [one for part in encoding.values() for one in (part if isinstance(part, list) else [part])]
    return {channel["field"] for channel in channels if "field" in channel} - {"stack_order"}


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours (WCAG 2.2)."""

    def luminance(color: str) -> float:
        parts = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.slow
@pytest.mark.server
class TestRun:
    """All tests share one run of the notebook."""

    def test_no_cell_fails_or_warns(self, executed: ExecutedNotebook) -> None:
        assert [output for output in executed.outputs() if output.output_type in ("error", "stream")] == []
        assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")

    def test_every_chart_is_shown(self, executed: ExecutedNotebook) -> None:
        assert set(executed.charts()) == CHARTS

    @pytest.mark.parametrize("name", sorted(CHARTS))
    def test_every_mark_has_rows_with_all_that_it_shows(self, executed: ExecutedNotebook, name: str) -> None:
        spec = executed.charts()[name]
        marks = list(units(spec))
        assert marks
        for rows_name, encoding in marks:
            rows = spec["datasets"][rows_name]
            assert rows
            for field in fields(encoding):
                assert any(row[field] is not None for row in rows), field
            counts = [row[field] for row in rows for field in fields(encoding) if field.endswith(("_count", "count"))]
            assert not counts or max(counts) > 0

    def test_charts_show_the_counts_of_the_reports(self, executed: ExecutedNotebook) -> None:
        views = executed.charts()["views_chart"]
        rows = views["datasets"][views["data"]["name"]]
        assert {row["surface"] for row in rows} == {"dashboard", "app", "chat"}
        assert len({row["period_start"] for row in rows}) >= 5
        assert views["title"]["subtitle"] == f"{sum(row['view_count'] for row in rows):,} in total"

    def test_frames_have_proper_types(self, executed: ExecutedNotebook) -> None:
        expected = {
            r"(.+_at|period_start)": {"datetime64[us, UTC]"},
            r".+_count|deployment|ingest_seq|latency_ms": {"Int64"},
            r".+_rate|errors_per_view|load_p\d+_ms": {"float64"},
            r"surface|format|target|stage|reason|status|type": {"category"},
            r"public_id|title|member|session|viewer|tenant|query|message_shape|query_shape": {"string"},
            r"is_ambiguous": {"boolean"},
        }
        reports = {
            "views",
            "dashboards",
            "reach",
            "drilldowns",
            "ai_queries",
            "ai_query",
            "answers",  # the frame of `ai_query_groups`
            "error_rates",
        }
        reports |= {"errors", "downloads", "download_audit", "completeness", "rejections", "events", "event_totals"}
        for name in reports:
            for column, type_ in executed.frames[name].items():
                known = [types for pattern, types in expected.items() if re.fullmatch(pattern, column)]
                assert all(type_ in types for types in known), f"{name}.{column}: {type_}"

    def test_no_frame_falls_back_to_objects(self, executed: ExecutedNotebook) -> None:
        object_columns = {
            (name, column)
            for name, types in executed.frames.items()
            for column, type_ in types.items()
            if type_ == "object"
        }
        assert object_columns == set()

    def test_colours_are_visible_on_light_and_dark_pages(self, executed: ExecutedNotebook) -> None:
        for name, spec in executed.charts().items():
            assert spec["background"] == "transparent", name
            for color in set(re.findall(r"#[0-9a-f]{6}\b", json.dumps({**spec, "datasets": {}}))):
                for page, ground in PAGES.items():
                    assert contrast(color, ground) >= CONTRAST_MIN, f"{name}: {color} on a {page} page"


@pytest.mark.slow
@pytest.mark.server
def test_the_notebook_runs_on_a_folder_without_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_SNAPSHOT_INTERVAL_S="0.2") as server:
        wait_until((server.data / "analytics.duckdb").exists, description="there is a snapshot")
        executed = run(server.data, tmp_path, monkeypatch)
    assert set(executed.charts()) == CHARTS


class TestCommitted:
    """The committed notebook contains only text: no rows of data, and no traces of its author's machine."""

    def test_has_no_outputs(self) -> None:
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.id for cell in code if cell.outputs or cell.execution_count is not None] == []
        assert all(set(cell.metadata) <= {"jupyter"} for cell in notebook.cells)

    def test_names_no_absolute_path_and_no_key(self) -> None:
        text = NOTEBOOK.read_text(encoding="utf-8")
        assert re.findall(r"(?<![\w.)}/<*])/(?:home|Users|root|tmp|var|opt|work|mnt)\b|[A-Z]:\\\\|file://", text) == []
        assert not re.search(r"es_(?:ingest|read|admin)_\w", text)

    def test_names_the_python_3_kernel_without_a_version(self) -> None:
        metadata = nbformat.read(NOTEBOOK, as_version=4).metadata
        assert metadata.kernelspec.name == "python3"
        assert metadata.language_info == {"name": "python"}

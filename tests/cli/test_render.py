"""The command `embedsink render`: the same file from a folder and from a server, in the scope of the key."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedsink.data_folder import DataFolder
from tests.dashboards.image.svg_reader import texts_of
from tests.support.envelopes import view
from tests.support.servers import RunningServer, running_server, wait_until

Result = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Run a server whose snapshot has three views in deployment 1 and one in deployment 2."""
    folder = tmp_path_factory.mktemp("render") / "data"
    with running_server(folder, EMBEDSINK_SNAPSHOT_INTERVAL_S="0.1") as running:
        key, reader = running.key(), running.key("read")
        for deployment, count in ((1, 3), (2, 1)):
            body = {"context": {"deployment": deployment, "tenant": f"tenant {deployment}"}, "events": [view()] * count}
            assert running.post(body, key=key).status == 202
        assert running.get("/api/v1/inspect?since=1h&wait=10", key=reader).json()["acceptedCount"] == 4
        snapshot = DataFolder(folder).snapshot
        wait_until(
            lambda: snapshot.exists() and b"tenant 2" in snapshot.read_bytes(), description="the snapshot has them"
        )
        yield running


def render(*words: object) -> Result:
    return subprocess.run(
        [sys.executable, "-m", "embedsink", "render", *map(str, words)],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("EMBEDSINK_")},
        timeout=60,
        check=False,
    )


def views_in(file: Path) -> str:
    texts = texts_of(file.read_text(encoding="utf-8"))
    return texts[texts.index("Views") + 1]


# The timestamps of the events are in 2025.
PERIOD = ("--since", "2025-11-01", "--until", "2025-12-01")


def test_a_folder_and_a_server_render_the_same_numbers(server: RunningServer, tmp_path: Path) -> None:
    result = render("tenants", *PERIOD, "--data", server.data, "-o", tmp_path / "folder.svg")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    key = server.key("read")
    assert render("tenants", *PERIOD, "--url", server.url, "--key", key, "-o", tmp_path / "server.svg").returncode == 0
    assert views_in(tmp_path / "folder.svg") == views_in(tmp_path / "server.svg") == "4"


def test_a_scoped_key_renders_only_its_deployments(server: RunningServer, tmp_path: Path) -> None:
    key, file = server.key("read", deployments=[2]), tmp_path / "mine.svg"
    assert render("tenants", *PERIOD, "--url", server.url, "--key", key, "-o", file).returncode == 0
    assert views_in(file) == "1"
    assert "tenant 1" not in file.read_text(encoding="utf-8")
    refused = render("tenants", "--deployment", 1, "--url", server.url, "--key", key, "-o", tmp_path / "theirs.svg")
    assert refused.returncode == 1
    assert "outside the key's scope" in refused.stderr
    assert not (tmp_path / "theirs.svg").exists()


def test_values_of_the_server_itself_are_rendered_from_a_server(server: RunningServer, tmp_path: Path) -> None:
    key = server.key("read")
    assert render("pipeline", "--url", server.url, "--key", key, "-o", tmp_path / "server.svg").returncode == 0
    assert render("pipeline", "--data", server.data, "-o", tmp_path / "folder.svg").returncode == 0
    server_texts, folder_texts = (
        set(texts_of((tmp_path / f"{name}.svg").read_text())) for name in ("server", "folder")
    )
    assert any("snapshot" in text.lower() for text in server_texts - folder_texts)


def test_a_server_renders_its_own_dashboards(tmp_path: Path) -> None:
    dashboards = tmp_path / "data" / "dashboards"
    dashboards.mkdir(parents=True)
    chart = {"id": "a", "kind": "number", "title": "Viewed", "report": "views", "how": "sum", "column": "view_count"}
    section = {"id": "s", "title": "At a glance", "charts": [chart]}
    board = {"title": "Support desk", "description": "What we look at.", "sections": [section]}
    (dashboards / "support.json").write_text(json.dumps(board))
    (dashboards / "overview.json").write_text(json.dumps(board))
    with running_server(tmp_path / "data") as running:
        options = ("--url", running.url, "--key", running.key("read"), "--data", tmp_path / "elsewhere")
        for name in ("support", "overview"):  # The second has the name of a built-in dashboard.
            result = render(name, *options, "-o", tmp_path / f"{name}.svg")
            assert (result.returncode, result.stderr) == (0, "")
            texts = texts_of((tmp_path / f"{name}.svg").read_text(encoding="utf-8"))
            assert {"Support desk", "At a glance", "Viewed"} <= set(texts)
        unknown = render("suport", *options, "-o", tmp_path / "unknown.svg")
    assert unknown.returncode != 0
    assert 'Did you mean "support"?' in unknown.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("overview", "-o", "out.gif"), ".pdf, .png, .svg, .html"),
        (("overview", "-o", "out"), ".pdf, .png, .svg, .html"),
        (("overveiw", "-o", "out.svg"), 'Did you mean "overview"?'),
        (("overview", "--period", "8d", "-o", "out.svg"), "24h, 7d, 30d, 90d"),
        (("overview", "--surface", "moon", "-o", "out.svg"), "surface:"),
        (("overview",), "-o"),
    ],
)
def test_wrong_use_is_exit_code_2_and_leaves_no_file(
    server: RunningServer, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    arguments = [str(tmp_path / word) if word.startswith("out") else word for word in words]
    result = render(*arguments, "--data", server.data)
    assert (result.returncode, result.stdout) == (2, "")
    assert sentence in result.stderr
    assert list(tmp_path.iterdir()) == []

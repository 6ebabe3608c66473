"""The files in ops/: promtool accepts them, and their metrics exist."""

import asyncio
import itertools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from embedsink.data_folder import DataFolder
from embedsink.engine import Engine
from embedsink.http.metrics import metrics_text
from embedsink.settings import Settings
from tests.support.paths import ROOT
from tests.support.programs import require

OPS = ROOT / "ops"
RULES = (OPS / "prometheus-alerts.yml").read_text(encoding="utf-8")
RULE_TESTS = (OPS / "prometheus-alerts.test.yml").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((OPS / "grafana-dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
METRIC = re.compile(r"\b(?:embedsink|process)_[a-z_]+\b")
# Values for Grafana's variables.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}
COLUMNS = 24


def promtool(*words: str) -> str:
    """Run promtool, assert its success, and return its output."""
    require("promtool")
    result = subprocess.run(["promtool", *words], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def expressions() -> list[str]:
    """Return the queries of the dashboard, as Grafana sends them."""
    queries = [target["expr"] for panel in PANELS for target in panel["targets"]]
    for variable, value in VARIABLES.items():
        queries = [query.replace(variable, value) for query in queries]
    return queries


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the names of all metrics on /metrics."""

    async def show() -> bytes:
        async with Engine(DataFolder(tmp_path_factory.mktemp("metrics")), Settings()) as engine:
            return metrics_text(engine)

    return set(re.findall(r"^([a-z_]+)[{ ]", asyncio.run(show()).decode(), re.MULTILINE))


def test_promtool_accepts_the_alert_rules() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES)
    assert f"SUCCESS: {len(alerts)} rules found" in promtool(
        "check", "rules", "--lint=all", str(OPS / "prometheus-alerts.yml")
    )


def test_each_alert_fires_for_its_fault_and_none_on_a_healthy_server() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(OPS / "prometheus-alerts.test.yml"))
    fired = re.findall(r"alertname: (\w+)\n +exp_alerts:", RULE_TESTS)
    silent = re.findall(r"\{eval_time: 1h, alertname: (\w+)\}", RULE_TESTS)
    assert sorted(fired) == sorted(silent) == sorted(re.findall(r"- alert: (\w+)", RULES))


def test_a_changed_threshold_fails_the_test_of_the_rules(tmp_path: Path) -> None:
    require("promtool")
    (tmp_path / "prometheus-alerts.yml").write_text(RULES.replace("segments > 500", "segments > 5000"))
    (tmp_path / "prometheus-alerts.test.yml").write_text(RULE_TESTS)
    result = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "prometheus-alerts.test.yml")], capture_output=True
    )
    assert result.returncode != 0
    assert b"EmbedsinkLoadingBehind" in result.stdout + result.stderr


@pytest.mark.parametrize(
    "text", [RULES, RULE_TESTS, "\n".join(expressions())], ids=["rules", "their test", "dashboard"]
)
def test_every_metric_in_the_files_exists(text: str, metrics: set[str]) -> None:
    named = set(METRIC.findall(text))
    assert named
    assert named <= metrics


def test_the_queries_of_the_dashboard_are_valid_promql(tmp_path: Path) -> None:
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(expressions())]
    file = tmp_path / "queries.yml"  # JSON is YAML.
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", "--lint=none", str(file))


def test_the_dashboard_has_all_fields_that_grafana_needs() -> None:
    assert DASHBOARD["uid"] == "embedsink"
    assert DASHBOARD["schemaVersion"] >= 36
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "instance"}
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) == len({panel["title"] for panel in PANELS})
    for panel in PANELS:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        references = [target["refId"] for target in panel["targets"]]
        assert references == ["A", "B", "C"][: len(references)] != []
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        # Users choose the data source through a variable.
        assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


def test_panels_cover_the_grid_without_overlaps() -> None:
    cells = list[tuple[int, int]]()
    for panel in PANELS:
        position = panel["gridPos"]
        assert position["x"] + position["w"] <= COLUMNS
        rows, columns = (
            range(position["y"], position["y"] + position["h"]),
            range(position["x"], position["x"] + position["w"]),
        )
        cells += itertools.product(rows, columns)
    assert len(cells) == len(set(cells)) == COLUMNS * (max(row for row, _ in cells) + 1)

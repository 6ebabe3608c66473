"""The files in ops/ hold for this server: Prometheus' own checker loads them, and they name metrics that exist."""

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
from embedsink.http.metrics import exposition
from embedsink.settings import Settings
from tests.programs import require

ROOT = Path(__file__).parents[1]
OPS = ROOT / "ops"
RULES = (OPS / "prometheus-alerts.yml").read_text(encoding="utf-8")
RULE_TESTS = (OPS / "prometheus-alerts.test.yml").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((OPS / "grafana-dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
METRIC = re.compile(r"\b(?:embedsink|process)_[a-z_]+\b")
# What Grafana puts in the place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*"}
COLUMNS = 24


def promtool(*words: str) -> str:
    """What promtool says of good input."""
    require("promtool")
    done = subprocess.run(["promtool", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expressions() -> list[str]:
    """The queries of the dashboard, as Grafana sends them."""
    found = [target["expr"] for panel in PANELS for target in panel["targets"]]
    for variable, value in VARIABLES.items():
        found = [query.replace(variable, value) for query in found]
    return found


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all that a server shows on /metrics."""

    async def show() -> bytes:
        async with Engine(DataFolder(tmp_path_factory.mktemp("metrics")), Settings()) as engine:
            return exposition(engine)

    return set(re.findall(r"^([a-z_]+)[{ ]", asyncio.run(show()).decode(), re.MULTILINE))


def test_promtool_loads_the_alert_rules() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES)
    assert f"SUCCESS: {len(alerts)} rules found" in promtool(
        "check", "rules", "--lint=all", str(OPS / "prometheus-alerts.yml")
    )


def test_each_alert_fires_in_its_trouble_and_none_on_a_healthy_server() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(OPS / "prometheus-alerts.test.yml"))
    fired = re.findall(r"alertname: (\w+)\n +exp_alerts:", RULE_TESTS)
    silent = re.findall(r"\{eval_time: 1h, alertname: (\w+)\}", RULE_TESTS)
    assert sorted(fired) == sorted(silent) == sorted(re.findall(r"- alert: (\w+)", RULES))


def test_a_changed_threshold_fails_the_rules_own_test(tmp_path: Path) -> None:
    require("promtool")
    (tmp_path / "prometheus-alerts.yml").write_text(RULES.replace("segments > 500", "segments > 5000"))
    (tmp_path / "prometheus-alerts.test.yml").write_text(RULE_TESTS)
    done = subprocess.run(
        ["promtool", "test", "rules", str(tmp_path / "prometheus-alerts.test.yml")], capture_output=True
    )
    assert done.returncode != 0
    assert b"EmbedsinkLoadingBehind" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "text", [RULES, RULE_TESTS, "\n".join(expressions())], ids=["rules", "their test", "dashboard"]
)
def test_every_metric_that_is_named_is_shown_by_the_server(text: str, metrics: set[str]) -> None:
    named = set(METRIC.findall(text))
    assert named
    assert named <= metrics


def test_the_queries_of_the_dashboard_are_promql(tmp_path: Path) -> None:
    rules = [{"record": f"query_{number}", "expr": query} for number, query in enumerate(expressions())]
    file = tmp_path / "queries.yml"  # JSON is YAML.
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", "--lint=none", str(file))


def test_the_dashboard_is_one_that_grafana_imports() -> None:
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
        # The reader's choice, and no address of ours.
        assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


def test_no_panel_of_the_dashboard_covers_another() -> None:
    taken = list[tuple[int, int]]()
    for panel in PANELS:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        rows, columns = range(place["y"], place["y"] + place["h"]), range(place["x"], place["x"] + place["w"])
        taken += itertools.product(rows, columns)
    assert len(taken) == len(set(taken)) == COLUMNS * (max(row for row, _ in taken) + 1)

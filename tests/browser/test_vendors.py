"""The adapters for other vendors' embeds, on messages as the vendors document them (vendors/*.json)."""

import copy
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from embedsink.protocol.messages import catalog_for
from embedsink.protocol.validation import parse
from tests.support.paths import ROOT

Fixture = dict[str, Any]
FOLDER = Path(__file__).parent / "vendors"
SOURCE = ROOT / "packages/browser/src/vendors"
FIXTURES: list[Fixture] = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))]
VENDORS = sorted(path.stem for path in SOURCE.glob("*.ts"))
ENVELOPE_BYTES_MAX = 65_536

SECRET = "canary-4711"
TOKEN = "eyJjYW5hcnkx.eyJjYW5hcnky.Y2FuYXJ5Mw"
NAMES = (
    "token",
    "authToken",
    "api_token",
    "navigation_token",
    "jwt",
    "customerJwt",
    "apiKey",
    "client_secret",
    "api-key",
    "accessKey",
    "db_passwd",
    "Secret Key",
    "signature",
    "Authorization",
    "credentials",
)
CREDENTIALS = dict.fromkeys(NAMES, SECRET)
TEXTS = {"message", "errorMessage", "error"}


@pytest.fixture(scope="module")
def modules(package: Path) -> Path:
    """The compiled adapters."""
    return package / "dist" / "vendors"


def run(modules: Path, fixtures: list[Fixture], *, is_hostile: bool = False) -> dict[str, Any]:
    """Return the events of all flows, from one process."""
    job = json.dumps({"modules": str(modules), "fixtures": fixtures, "isHostile": is_hostile})
    finished = subprocess.run(["node", FOLDER / "runner.mjs"], input=job, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    output: dict[str, Any] = json.loads(finished.stdout)
    return output


def envelope(event: dict[str, Any]) -> dict[str, Any]:
    """Complete an adapter's event as the forwarder does."""
    return {
        "source": "svc-embed",
        "direction": "event",
        "type": f"svc:event:{event['type']}",
        "payload": event["payload"],
        "timestamp": event.get("timestamp", 1_795_230_000_000),
        "surface": event.get("surface", "dashboard"),
    }


def problems_of(event: dict[str, Any]) -> list[str]:
    """Return why the server would reject an event."""
    completed = envelope(event)
    problems = []
    if event["type"] == "x-filter":
        filters, path = event["payload"].get("filters", {}), event["payload"].get("path", "")
        if event["payload"].keys() - {"filters", "path"} or not (isinstance(filters, dict) and isinstance(path, str)):
            problems.append(f"not a payload of x-filter: {event}")
        problems += ["more than 100 filters"] if len(filters) > 100 else []
        problems += [f"a long name: {name[:300]}" for name in filters if len(name) > 256]
    if completed["type"] in catalog_for("svc").types:
        parsed = parse(json.dumps(completed).encode(), int(time.time() * 1_000))
        problems += [f"{rejection.detail} {str(event)[:300]}" for rejection in parsed.rejected]
    else:
        problems.append(f"unknown type: {event['type']}")
    if len(json.dumps(completed, ensure_ascii=False).encode()) > ENVELOPE_BYTES_MAX:
        problems.append(f"too large: {str(event)[:300]}")
    return problems


def with_credentials(value: Any) -> Any:
    """Return a message with credentials in all objects, URLs and error messages."""
    if isinstance(value, list):
        return [with_credentials(item) for item in value]
    if isinstance(value, str) and value.startswith(("/", "https://")):
        return f"{value.partition('#')[0]}{'&' if '?' in value else '?'}session={SECRET}&x={TOKEN}#{SECRET}"
    if isinstance(value, dict):
        changed = {key: with_credentials(item) for key, item in value.items()}
        for key in TEXTS & {key for key, item in changed.items() if isinstance(item, str)}:
            changed[key] += f" at https://a.example/x?key={SECRET}#{SECRET} /embed/x?a=1&b={SECRET} sig={SECRET}"
            changed[key] += f' "token":"{SECRET}" Bearer {SECRET} {TOKEN}'
            changed[key] += (
                f' token: {SECRET} {{\\"token\\":\\"{SECRET}\\"}} password="a {SECRET}" https://u:{SECRET}@h/x'
            )
            changed[key] += f" {{'secret_key': '{SECRET}'}} Authorization: Basic {SECRET}"
        return {**changed, **CREDENTIALS} if value else value
    return value


def types_of(results: list[dict[str, Any]]) -> list[list[str]]:
    """Return the types of the events of each step."""
    return [[event["type"] for event in step] for flow in results for step in flow["steps"]]


def test_each_adapter_has_fixtures_that_name_their_documentation() -> None:
    assert {fixture["vendor"] for fixture in FIXTURES} == set(VENDORS)
    for fixture in FIXTURES:
        assert fixture["documented"]
        assert all(source["page"] and source["url"].startswith("https://") for source in fixture["documented"])


def name_of(step: dict[str, Any]) -> str:
    """Return the vendor's name of a step's event."""
    message = step["send"] or {}
    names = (step.get("event"), message.get("type"), message.get("name"), message.get("event"))
    name = next(filter(None, names), None) or message.get("metabase", {}).get("type", "observeDataMask")
    return str(name).removeprefix("lightdash:")


def documented_events() -> dict[str, list[list[str]]]:
    """Return the cells of the rows of docs/vendors.md by vendor. A row without a vendor belongs to the one above."""
    rows: dict[str, list[list[str]]] = {}
    vendor = ""
    for line in (ROOT / "docs/vendors.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            name, *cells = [cell.strip() for cell in line.strip("|").split(" |")]
            vendor = name.lower().replace(" ", "") or vendor
            if len(cells) == 3:  # the vendor's event, ours, and the report
                rows.setdefault(vendor, []).append(cells)
    return rows


def test_the_documentation_lists_each_event_with_ours() -> None:
    rows = documented_events()
    for fixture in (fixture for fixture in FIXTURES if fixture["vendor"] != "cube"):
        for step in (step for flow in fixture["flows"] for step in flow["steps"]):
            ours = "".join(cells[1] for cells in rows[fixture["vendor"]] if f"`{name_of(step)}`" in cells[0])
            assert all(f"`{event['type']}`" in ours for event in step["events"]), (fixture["vendor"], name_of(step))


def test_adapters_convert_the_documented_messages(modules: Path) -> None:
    output = run(modules, FIXTURES)
    expected = [
        {
            "name": f"{fixture['vendor']}: {flow['name']}",
            "steps": [step["events"] for step in flow["steps"]],
            "afterDetach": [],
        }
        for fixture in FIXTURES
        for flow in fixture["flows"]
    ]
    assert output["thrown"] == []
    for actual, wanted in zip(output["results"], expected, strict=True):
        assert actual == wanted


def test_the_server_accepts_the_events_of_adapters(modules: Path) -> None:
    events = [event for flow in run(modules, FIXTURES)["results"] for step in flow["steps"] for event in step]
    assert len({event["type"] for event in events}) == 9
    assert [problem for event in events for problem in problems_of(event)] == []


def test_adapters_return_no_credentials(modules: Path) -> None:
    fixtures = copy.deepcopy(FIXTURES)
    for fixture in fixtures:
        for flow in fixture["flows"]:
            for step in flow["steps"]:
                step["send"] = with_credentials(step["send"])
    before, after = run(modules, FIXTURES), run(modules, fixtures)
    assert after["thrown"] == []
    assert SECRET in json.dumps(fixtures)
    assert types_of(after["results"]) == types_of(before["results"])
    for flow in after["results"]:
        text = json.dumps(flow)
        assert SECRET not in text, flow["name"]
        assert "eyJ" not in text, flow["name"]


def test_a_clicked_value_of_a_credential_is_not_returned(modules: Path) -> None:
    cell = {"columnName": "Users Api Token", "value": SECRET}
    message = {"type": "workbook:table:oncellselect", "cells": [cell], "nodeId": "n1"}
    flow = {"name": "a click", "steps": [{"send": message}]}
    output = run(modules, [{"vendor": "sigma", "kind": "message", "flows": [flow]}])
    [[event]] = output["results"][0]["steps"]
    assert event["payload"] == {"member": "Users Api Token", "widgetId": "n1"}


def test_two_forwarders_get_the_same_events_of_a_message(modules: Path) -> None:
    code = f"""
        const {{ adapt }} = await import("{(modules / "lightdash.js").as_uri()}");
        const message = {{ type: "lightdash:locationChanged", payload: {{ pathname: "/a" }} }};
        const embed = {{}};
        console.log(JSON.stringify([adapt(message, embed), adapt(message, embed)]));
    """
    command = ["node", "--input-type=module", "--eval", code]
    first, second = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert first == second
    assert [event["type"] for event in first] == ["view"]


def test_hostile_messages_throw_nothing_and_give_valid_events(modules: Path) -> None:
    output = run(modules, FIXTURES, is_hostile=True)
    # Cube speaks our protocol: the server checks its payloads.
    flows = [flow for flow in output["results"] if not flow["name"].startswith("cube:")]
    events = [event for flow in flows for step in flow["steps"] for event in step]
    assert output["thrown"] == []
    assert output["polluted"] is None
    assert len(events) > 100
    assert [problem for event in events for problem in problems_of(event)] == []

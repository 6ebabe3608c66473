"""The requests that large identity providers send have the effect that they expect."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.servers import running_server

pytestmark = pytest.mark.server

FILES = sorted((Path(__file__).parent / "requests").glob("*.json"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    with running_server(tmp_path_factory.mktemp("scim") / "data") as server:
        headers = {"Authorization": f"Bearer {server.key('scim')}", "Content-Type": "application/scim+json"}
        with httpx2.Client(base_url=f"{server.url}/api/scim/v2", headers=headers) as client:
            yield client


def filled(value: Any, saved: dict[str, str]) -> Any:
    """Return a value with the ids of earlier responses instead of their names in braces."""
    text = json.dumps(value)
    for name, resource_id in saved.items():
        text = text.replace(f"{{{name}}}", resource_id)
    return json.loads(text)


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """Return the paths at which a value lacks what is expected. Null means that a member is missing."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return [
            difference
            for name, value in expected.items()
            for difference in differences(value, actual.get(name), f"{path}.{name}")
        ]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        # Members of a group have no order. Resources have no `value`, so their order is compared.
        pairs = zip(sorted(expected, key=_value), sorted(actual, key=_value), strict=True)
        return [difference for one, other in pairs for difference in differences(one, other, path)]
    return [] if expected == actual else [f"{path}: {actual!r} instead of {expected!r}"]


def _value(entry: dict[str, Any]) -> str:
    return str(entry.get("value"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_provider_gets_what_it_expects(client: httpx2.Client, file: Path) -> None:
    saved: dict[str, str] = {}
    for number, step in enumerate(json.loads(file.read_text(encoding="utf-8"))["steps"]):
        step = filled(step, saved)
        response = client.request(step["method"], step["path"], json=step.get("body"))
        assert response.status_code == step["status"], (number, step, response.text)
        content = response.json() if response.content else {}
        assert differences(step.get("expect", {}), content) == [], (number, content)
        if "save" in step:
            saved[step["save"]] = content["id"]

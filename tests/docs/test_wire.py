"""docs/wire.md agrees with the program: reasons, limits and examples."""

import re
from pathlib import Path

import pytest

from embedsink.http.problems import ADVICE, advice_on
from embedsink.reasons import Reason
from embedsink.settings import Settings
from tests.support.app import open_server
from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "wire.md").read_text()
OF_REQUESTS = {reason for reason in Reason if reason.status is not None}
OF_ENVELOPES = {reason for reason in Reason if reason.status is None} | {Reason.OUT_OF_SCOPE}
BODIES = re.findall(r"```(json|ndjson)\n(.*?)```", TEXT, re.DOTALL)


def test_both_lists_of_reasons_are_complete() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)
    expected = {(str(r), str(r.status), r.sentence, advice_on(r)) for r in OF_REQUESTS}
    assert sorted(rows) == sorted(expected)
    last = TEXT.partition("### An envelope was rejected")[2]
    rejected = re.findall(r"^\| `(\w+)` \| ([A-Z].+) \|$", last, re.MULTILINE)
    assert sorted(rejected) == sorted((str(r), r.sentence) for r in OF_ENVELOPES)
    assert str(ADVICE[None]) in " ".join(last.split())


def test_each_limit_is_the_settings_default() -> None:
    rows = re.findall(r"^\| .+ \| ([\d,]+)[^|]*\| `EMBEDSINK_(\w+)` \|", TEXT, re.MULTILINE)
    assert len(rows) == 18
    defaults = Settings()
    assert {name: float(limit.replace(",", "")) for limit, name in rows} == {
        name: float(getattr(defaults, name.lower())) for _, name in rows
    }


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_each_example_works(kind: str, body: str, tmp_path: Path) -> None:
    type_ = {"json": "application/json", "ndjson": "application/x-ndjson"}[kind]
    with open_server(tmp_path) as server:
        response = server.post(body.encode(), key=server.key(), type_=type_)
    assert response.status_code == 202
    assert response.json()["accepted"] > 0
    assert response.json()["rejected"] == []


def test_all_four_bodies_and_the_extensions_have_an_example() -> None:
    assert len(BODIES) == 5

"""docs/privacy.md: its table of fields, and its files."""

import re
from pathlib import Path

import pytest

from embedsink.privacy.internal import read_internal_people
from embedsink.privacy.rules import FIELDS, Rule, read_privacy_rules
from embedsink.settings import read_settings
from tests.docs.blocks import blocks
from tests.support.paths import ROOT

ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \| `(\w+)` \| `(\w+)` \|$", re.MULTILINE)


def test_the_table_of_fields_is_complete() -> None:
    rows = ROW.findall((ROOT / "docs" / "privacy.md").read_text())
    expected = [
        (
            name,
            "all" if field.is_url else ", ".join(f"`{rule}`" for rule in (Rule.KEEP, Rule.HASH, Rule.DROP)),
            field.strict,
            field.anonymous,
        )
        for name, field in FIELDS.items()
    ]
    assert rows == expected


def test_the_documented_settings_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = [block for block in blocks("ini") if block.page == "docs/privacy.md"]
    for line in block.text.splitlines():
        monkeypatch.setenv(*line.split("="))
    assert read_settings().retention_days == 90


def test_the_fields_that_the_preset_keeps_are_listed() -> None:
    [listed] = re.findall(
        r"\*\*`strict` keeps six fields\*\*[^:]*: ([^.]*)\.", (ROOT / "docs" / "privacy.md").read_text()
    )
    assert re.findall(r"`(\w+)`", listed) == [name for name, field in FIELDS.items() if field.strict is Rule.KEEP]


def test_the_documented_files_are_valid(tmp_path: Path) -> None:
    rules, people = (block.text for block in blocks("toml") if block.page == "docs/privacy.md")
    (tmp_path / "privacy.toml").write_text(rules)
    strict = read_privacy_rules(tmp_path / "privacy.toml")
    assert (strict.preset, strict.honors_opt_out, strict.of_all_fields()["path"]) == ("strict", True, Rule.TEMPLATE)
    (tmp_path / "internal.toml").write_text(people)
    assert read_internal_people(tmp_path / "internal.toml").deployments == [7]

"""docs/privacy.md: its table of fields, and its files."""

import re
from pathlib import Path

from embedsink.privacy.internal import read_internal_people
from embedsink.privacy.rules import FIELDS, Rule, read_privacy_rules
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


def test_the_documented_files_are_valid(tmp_path: Path) -> None:
    rules, people = (block.text for block in blocks("toml") if block.page == "docs/privacy.md")
    (tmp_path / "privacy.toml").write_text(rules)
    assert read_privacy_rules(tmp_path / "privacy.toml").of_all_fields()["path"] is Rule.TEMPLATE
    (tmp_path / "internal.toml").write_text(people)
    assert read_internal_people(tmp_path / "internal.toml").deployments == [7]

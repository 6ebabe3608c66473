"""docs/privacy.md: its table of fields."""

import re

from embedsink.privacy.rules import FIELDS, Rule
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

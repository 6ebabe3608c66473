"""docs/spec-coverage.md lists every rule of the protocol, and each test that it names exists."""

import ast
import re
from functools import cache

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "spec-coverage.md").read_text(encoding="utf-8")
SECTION = re.compile(
    r"^## (?P<number>[\d.]+) [^(]+\((?P<count>\d+) rules?\)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)
RULE = re.compile(r"^\| (?P<id>[\d.]+-\d+) \| (?P<rule>[^|]+) \| (?P<held_by>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(?P<file>tests/[a-z_/]+\.py)::(?P<function>test_\w+)`")
# The number of rules in each section of the specification. A rule that is missing here is missing on the page.
RULE_COUNTS = {
    "1": 4,
    "2": 4,
    "3": 1,
    "4": 9,
    "5": 11,
    "6.1": 7,
    "6.2": 5,
    "6.3": 11,
    "6.4": 5,
    "6.5": 8,
    "6.6": 3,
    "7": 3,
    "8": 1,
    "9": 3,
}
RULES = [match.groupdict() for match in RULE.finditer(PAGE)]


@cache
def functions_of(file: str) -> set[str]:
    """Return the names of the test functions in a file, also of those in classes."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_no_rule_is_missing() -> None:
    sections = {match["number"]: match for match in SECTION.finditer(PAGE)}
    assert {number: int(match["count"]) for number, match in sections.items()} == RULE_COUNTS
    for number, match in sections.items():
        ids = [rule["id"] for rule in RULE.finditer(match["text"])]
        assert ids == [f"{number}-{index}" for index in range(1, RULE_COUNTS[number] + 1)]
    assert len(RULES) == sum(RULE_COUNTS.values())


@pytest.mark.parametrize("rule", RULES, ids=[rule["id"] for rule in RULES])
def test_a_rule_is_held_by_a_test_that_exists_or_by_others(rule: dict[str, str]) -> None:
    if rule["held_by"] in ("platform", "host page", "not built"):
        return
    match = TEST.fullmatch(rule["held_by"])
    assert match is not None, rule
    assert match["function"] in functions_of(match["file"])

"""docs/spec-coverage.md lists every rule of the specification, and each test that it names exists."""

import ast
import re
from functools import cache

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "spec-coverage.md").read_text(encoding="utf-8")
SECTION = re.compile(
    r"^## (?P<number>[\d.]+) [^(\n]+ \((?P<count>\d+) rules?\)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
)
ROW = re.compile(r"^\|(?! rule \||---).*$", re.MULTILINE)
RULE = re.compile(r"\| (?P<id>(?P<item>[\d.]+)-\d+) \| (?P<rule>[^|]+) \| (?P<held_by>[^|]+) \|")
TEST = re.compile(r"`(?P<file>tests/[a-z_/]+\.py)::(?P<function>test_\w+)`")
DUTIES = {"platform", "host page"}
# The number of rules in each section of the specification, by section and by numbered item in section 5. The
# specification is not part of this repository, so a rule that is missing here can be missing on the page.
RULE_COUNTS = {
    "0": {"0": 1},
    "1": {"1": 7},
    "2.1": {"2.1": 8},
    "2.2": {"2.2": 2},
    "2.3": {"2.3": 2},
    "2.4": {},
    "3": {"3": 1},
    "4.1": {"4.1": 8},
    "4.2": {"4.2": 4},
    "4.3": {"4.3": 4},
    "5": {"5.1": 4, "5.2": 2, "5.3": 3, "5.4": 3, "5.5": 3, "5.6": 2, "5.7": 1},
    "6": {"6": 2},
    "6.1": {"6.1": 11},
    "6.2": {"6.2": 7},
    "6.3": {"6.3": 12},
    "6.4": {"6.4": 16},
    "6.5": {"6.5": 14},
    "6.6": {"6.6": 4},
    "7": {"7": 4},
    "8": {},
    "9": {"9": 5},
}


def rules_in(text: str) -> list[dict[str, str]]:
    """Return the rules of a text. Each row of a table is a rule."""
    matches = [(row, RULE.fullmatch(row)) for row in ROW.findall(text)]
    assert [row for row, match in matches if match is None] == []
    return [match.groupdict() for _, match in matches if match]


SECTIONS = list(SECTION.finditer(PAGE))
RULES = rules_in(PAGE)


@cache
def functions_in(file: str) -> set[str]:
    """Return the names of the test functions in a file, and of the test methods in its classes."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for body in bodies for node in body if isinstance(node, functions)}


def test_the_page_has_every_section_with_its_number_of_rules() -> None:
    headings = re.findall(r"^## .*$", PAGE, re.MULTILINE)
    sections = [(match["number"], int(match["count"])) for match in SECTIONS]
    assert len(headings) == len(sections)
    assert sections == [(number, sum(counts.values())) for number, counts in RULE_COUNTS.items()]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section["number"])
def test_the_rules_of_a_section_are_numbered_without_gaps(section: re.Match[str]) -> None:
    counts = RULE_COUNTS[section["number"]]
    expected = [f"{item}-{index}" for item, count in counts.items() for index in range(1, count + 1)]
    assert [rule["id"] for rule in rules_in(section["text"])] == expected


def test_every_rule_is_in_a_section() -> None:
    assert len(RULES) == sum(sum(counts.values()) for counts in RULE_COUNTS.values())


@pytest.mark.parametrize("rule", RULES, ids=[rule["id"] for rule in RULES])
def test_each_rule_names_existing_tests_or_a_duty(rule: dict[str, str]) -> None:
    if rule["held_by"] in DUTIES:
        return
    for part in rule["held_by"].split(", "):
        match = TEST.fullmatch(part)
        assert match, f"{rule['id']}: {part} is not a test. Name tests, or one of {sorted(DUTIES)}."
        assert match["function"] in functions_in(match["file"])

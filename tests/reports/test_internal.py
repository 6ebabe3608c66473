"""Internal people: the parameter `internal` leaves their events out of every report, or includes them, or only them."""

from pathlib import Path
from typing import Any

import pytest

from embedsink.store.database import Store
from tests.reports.test_cases import REPORTS, expected_cell, query_of, read_cases, reader_of

_NOT_EVENTS = {"user", "group", "sync", "rejected"}


def is_event(given: dict[str, Any]) -> bool:
    return bool(given.get("type")) and not _NOT_EVENTS & given.keys()


def of_others(event: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an event by another person in another session."""
    names = {"session": "s1", "viewer": "u1"} | event
    others = {name: names[name] and f"other-{names[name]}" for name in ("session", "viewer")}
    return event | others | {"id": None, "lost": None}


def variant(case: dict[str, Any], report: str, internal: str | None) -> dict[str, Any]:
    """Return a case with the same expected rows for this value of the parameter; None means that it is missing."""
    are_internal = internal in ("include", "only")
    events = [read_cases(report).get("defaults", {}) | one for one in case.get("given", [])]
    given = [one | {"internal": are_internal} if is_event(one) else one for one in events]
    if internal != "include":
        given += [of_others(one) | {"internal": not are_internal} for one in given if is_event(one)]
    return case | {"given": given, "scope": case.get("scope", {}) | {"internal": internal}}


@pytest.mark.parametrize("internal", [None, "include", "only"])
@pytest.mark.parametrize("report", REPORTS)
def test_events_of_other_people_change_no_row(
    report: str, internal: str | None, opened: Store, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    # The cases with the most events are enough, because each report reads its events through the same views.
    for case in sorted(read_cases(report)["cases"], key=lambda one: len(one.get("given", [])))[-8:]:
        with (
            subtests.test(case["case"]),
            reader_of(report, variant(case, report, internal), opened, tmp_path) as reader,
        ):
            query = query_of(report, case, reader)
            columns = reader.selected_columns(query)
            rows = [row for rows in reader.rows(query) for row in rows]
            assert rows == [tuple(map(expected_cell, row, columns)) for row in case["expect"]]

"""The parameter `vendor` narrows every report to the events of one vendor's embed."""

from pathlib import Path

import pytest

from embedsink.errors import Refused
from embedsink.reports.scope import parse_scope
from embedsink.store.database import Store
from tests.reports.test_cases import REPORTS, expected_cell, query_of, read_cases, reader_of
from tests.reports.test_internal import is_event, of_others


@pytest.mark.parametrize("vendor", ["Looker", "", "a b", "looker\n", "x" * 33])
def test_a_text_that_names_no_vendor_is_refused(vendor: str) -> None:
    with pytest.raises(Refused, match=r"vendor: .* is not the name of a vendor"):
        parse_scope({"vendor": vendor})


@pytest.mark.parametrize("report", REPORTS)
def test_events_of_other_vendors_change_no_row(
    report: str, opened: Store, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    # The cases with the most events are enough, because each report reads its events through the same views.
    for case in sorted(read_cases(report)["cases"], key=lambda one: len(one.get("given", [])))[-8:]:
        events = [read_cases(report).get("defaults", {}) | one for one in case.get("given", [])]
        given = [one | {"vendor": "looker"} if one.get("type") else one for one in events]
        given += [of_others(one) | {"vendor": vendor} for one in events if is_event(one) for vendor in ("sigma", None)]
        narrowed = case | {"given": given, "scope": case.get("scope", {}) | {"vendor": "looker"}}
        with subtests.test(case["case"]), reader_of(report, narrowed, opened, tmp_path) as reader:
            query = query_of(report, case, reader)
            columns = reader.selected_columns(query)
            rows = [row for rows in reader.rows(query) for row in rows]
            assert rows == [tuple(map(expected_cell, row, columns)) for row in case["expect"]]

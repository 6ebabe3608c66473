"""Reports by department and group agree with the reports without them, for arbitrary events and directories."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedsink.errors import Refused
from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import depends_on_directory, reports_with_dimensions, view_of, visible_columns
from embedsink.reports.scope import Scope, parse_scope
from embedsink.store.database import Store
from embedsink.store.query import SelectQuery
from embedsink.store.sql_files import read_sql
from tests.reports.test_cases import clear
from tests.support.given import instant, write_segment

REPORTS = ("ai_queries", "downloads", "error_rates", "sessions", "views")
# The sums of these columns over departments are the totals. Distinct counts, rates and percentiles don't add up.
ADDITIVE = ("view_count", "download_count", "submitted_count", "completed_count", "abandoned_count", "error_count")
VIEWERS = ("u1", "u2", "u3", "u4", None)
DEPARTMENTS = ("Sales", "Support", None)
GROUPS = ("G", "H")
NOW = instant("12:00")

Row = dict[str, Any]

users = st.dictionaries(st.sampled_from(["u1", "u2", "u3"]), st.sampled_from(DEPARTMENTS)).map(
    lambda departments: [
        {"user": viewer, **({} if department is None else {"department": department})}
        for viewer, department in departments.items()
    ]
)
groups = st.dictionaries(st.sampled_from(GROUPS), st.sets(st.sampled_from(["u1", "u2", "u3"]))).map(
    lambda members: [{"group": name, "members": sorted(user_ids)} for name, user_ids in members.items()]
)
events = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["view", "download", "error", "ai-query"]),
            "viewer": st.sampled_from(VIEWERS),
            "session": st.sampled_from(["s1", "s2", None]),
            "at": st.sampled_from(["10:00", "10:10", "10:20"]),
            "surface": st.just("dashboard"),
        }
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("segments")


def rows(store: Store, report: str, **scope: Any) -> list[Row]:
    """Return the rows of a report as clients get them."""
    view = view_of(report, Scope(**scope))
    with store.reader({**EVERYTHING.variables(), "now": NOW, **scope}) as reader:
        names = visible_columns(reader, view)
        return [dict(zip(names, row, strict=True)) for batch in reader.rows(SelectQuery(view, names)) for row in batch]


def without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def test_five_reports_have_dimensions() -> None:
    assert reports_with_dimensions() == REPORTS


@settings(max_examples=5)  # Each loads a segment, and reads 45 times.
@given(directory=st.tuples(users, groups), history=events)
def test_rows_by_department_and_group_agree_with_the_report(
    opened: Store, folder: Path, directory: tuple[list[Row], list[Row]], history: list[Row]
) -> None:
    clear(opened)
    opened.load(inspect(write_segment(folder, [*directory[0], *directory[1], *history])))
    for report in REPORTS:
        total = rows(opened, report)
        by_department = rows(opened, report, dimensions=("department",))
        by_group = rows(opened, report, dimensions=("group",))
        for name in ADDITIVE:
            assert sum(row.get(name, 0) for row in by_department) == sum(row.get(name, 0) for row in total), report
        if report == "sessions":
            assert [without(row, "department") for row in by_department] == total
            assert [without(row, "group") for row in by_group] == total
        # A filter selects the rows of its department or group.
        for department in ("Sales", "Support"):
            expected = [without(row, "department") for row in by_department if row["department"] == department]
            assert rows(opened, report, department=department) == expected, report
        for group in GROUPS:
            expected = [without(row, "group") for row in by_group if group in (row["group"] or "").split(", ")]
            assert rows(opened, report, viewer_group=group) == expected, report
        # Everything that a key with tenants asks for by department has none.
        assert all(
            row["department"] is None for row in rows(opened, report, tenants=("t",), dimensions=("department",))
        )


def test_a_report_without_dimensions_has_the_plan_of_its_source_only(opened: Store) -> None:
    connection = opened._load_connection()
    for report in read_sql("reports"):
        plan = str(connection.execute(f"explain select * from {report}").fetchall())
        assert ("directory_user" in plan) == depends_on_directory(report) == (report == "leavers"), report


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"by": "team"}, 'by: "team" is not one of department, group.'),
        ({"by": "group,group"}, 'by: "group" is listed twice. Give it once.'),
        ({"by": ""}, 'by: "" is not one of department, group.'),
        ({"group": "\0"}, 'group: "\\u0000" contains a NUL or a lone surrogate. Remove it.'),
    ],
)
def test_a_wrong_parameter_is_refused(params: dict[str, str | None], message: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_scope(params)
    assert str(refused.value) == message


@pytest.mark.parametrize("name", ["by", "department", "group"])
def test_other_reports_refuse_the_parameters_and_name_the_five(name: str) -> None:
    scope = parse_scope({name: "group"})
    with pytest.raises(Refused) as refused:
        view_of("errors", scope)
    assert str(refused.value) == (
        f"{name}: the report errors does not have this parameter. "
        "Reports that have it: ai_queries, downloads, error_rates, sessions, views."
    )

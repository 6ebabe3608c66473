"""Each report has the expected rows for the given events and scope of each case in tests/reports/*.yaml.

A case has a promise (`case`), events (`given`, see tests/support/given.py), session variables (`scope`), the server's
clock (`now`) and rows (`expect`, all of `columns` in order). A file may set `defaults` for the given events. A case
with dimensions has its own `columns`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.reports.catalog import view_of, visible_columns
from embedsink.reports.scope import Scope
from embedsink.store.database import Store
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader
from embedsink.store.sql_files import LAYERS, read_sql, read_views, sql_folder
from embedsink.store.view_catalog import Column
from tests.support.given import ACTIONS, REQUIRED, instant, write_segment
from tests.support.rows import relations_in

CASES = Path(__file__).parent
REPORTS = sorted(read_sql("reports"))
VIEWS = [name for name, sql in read_views().items() if "\ncreate or replace view" in sql]
TABLES = (
    *("directory_user", "directory_group", "directory_member"),
    *("event", "action", "quarantine", "loss", "sync", "sync_file", "loaded_segment", "session_15min", "rollup_batch"),
    *("session_ready", "ready_fact"),
)
MEASURED = ("share_of_ready", "seconds_to_first_value_p50")
MEASURED_ENDINGS = ("_ms", "_s", "_rate", "_per_view")
COLUMN_COMMENT = re.compile(r"[^\n]+?\.(?P<unit> Unit: (ms|s|share|errors per view)\.)?")


class _Loader(yaml.CSafeLoader):
    """A YAML loader without numbers of base 60, so that the time of day `10:00` remains text."""


_NUMBERS = {"tag:yaml.org,2002:int": r"-?\d+$", "tag:yaml.org,2002:float": r"-?\d+(\.\d+)?(e\d+)?$"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
for _tag, _pattern in _NUMBERS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list("-0123456789"))


@cache
def read_cases(report: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.load((CASES / f"{report}.yaml").read_text(), _Loader)
    return content


@pytest.fixture
def store(opened: Store) -> Store:
    """Empty the store before each test."""
    clear(opened)
    return opened


def clear(store: Store) -> None:
    for table in TABLES:
        store._load_connection().execute(f"truncate {table}")


@contextmanager
def reader_of(report: str, case: dict[str, Any], store: Store, folder: Path) -> Iterator[Reader]:
    """Open a reader for the events and the scope of a case."""
    clear(store)
    defaults = read_cases(report).get("defaults", {})
    store.load(inspect(write_segment(folder, (defaults | event for event in case.get("given", [])))))
    with store.reader(scope_of(case)) as reader:
        yield reader


def scope_of(case: dict[str, Any]) -> dict[str, object]:
    scope: dict[str, object] = {**EVERYTHING.variables(), "now": case.get("now")} | case.get("scope", {})
    instants = {name: instant(scope[name]) for name in ("since", "until", "now") if scope.get(name) is not None}
    return scope | instants


def query_of(report: str, case: dict[str, Any], reader: Reader) -> SelectQuery:
    """Return the query of a report, with the dimensions and the filters of a case that has some."""
    names = ("dimensions", "department", "viewer_group")
    view = view_of(report, Scope(**{name: case["scope"][name] for name in names if name in case.get("scope", {})}))
    return SelectQuery(view, visible_columns(reader, view))


def expected_cell(cell: object, column: Column) -> object:
    if isinstance(cell, float):
        return pytest.approx(cell)
    return instant(cell) if column.type == "TIMESTAMP" and cell is not None else cell


@pytest.mark.parametrize("report", REPORTS)
def test_report(report: str, store: Store, tmp_path: Path, subtests: pytest.Subtests) -> None:
    content = read_cases(report)
    for case in content["cases"]:
        with subtests.test(case["case"]), reader_of(report, case, store, tmp_path) as reader:
            query = query_of(report, case, reader)
            columns = reader.selected_columns(query)
            rows = [row for rows in reader.rows(query) for row in rows]
            assert [column.name for column in columns] == case.get("columns", content["columns"])
            assert rows == [tuple(map(expected_cell, row, columns)) for row in case["expect"]]


@pytest.mark.slow
@pytest.mark.parametrize("report", ["dashboards", "load_times"])
def test_a_column_has_the_same_values_when_selected_alone(
    report: str, store: Store, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    # The cases with the most rows are enough: each case takes a query for each column.
    for case in sorted(read_cases(report)["cases"], key=lambda one: len(one["expect"]))[-5:]:
        with subtests.test(case["case"]), reader_of(report, case, store, tmp_path) as reader:
            all_columns = [row for rows in reader.rows(report) for row in rows]
            for index, column in enumerate(reader.columns(report)):
                one_column = [row for rows in reader.rows(SelectQuery(report, (column.name,))) for row in rows]
                assert one_column == [(row[index],) for row in all_columns], column.name


@pytest.mark.parametrize("report", REPORTS)
def test_the_first_case_has_no_events(report: str) -> None:
    first = read_cases(report)["cases"][0]
    assert (first["case"], first.get("given", []), first["expect"]) == ("no events", [], [])


@pytest.mark.parametrize("report", REPORTS)
def test_report_describes_itself_and_its_columns(report: str, store: Store) -> None:
    with store.reader(EVERYTHING.variables()) as reader:
        title, question, grain = reader.comment(report).splitlines()
        assert not title.endswith(".")
        assert question.endswith("?")
        assert re.fullmatch(r"One row per .+\.", grain)
        for column in reader.columns(report):
            described = COLUMN_COMMENT.fullmatch(column.comment)
            assert described, f"{report}.{column.name}: {column.comment!r}"
            name = column.name.removesuffix("_before").removesuffix("_after")
            is_measured = name in MEASURED or name.endswith(MEASURED_ENDINGS)
            assert bool(described["unit"]) == is_measured, column.name


@pytest.mark.parametrize("report", REPORTS)
def test_report_and_its_columns_are_documented(report: str, store: Store) -> None:
    text = (sql_folder().parent / "docs" / "reports.md").read_text()
    section = re.search(rf"(?ms)^### `{report}`$(.*?)(?=^##)", text + "\n## end")
    assert section, f"docs/reports.md has no section `{report}`"
    listed = re.findall(r"(?m)^\| `(\w+)` \| (\w+) \|", section[1])
    with store.reader(EVERYTHING.variables()) as reader:
        assert listed == [(column.name, column.type.lower()) for column in reader.columns(report)]
        assert section[1].split("\n\n")[1] == reader.comment(report).splitlines()[1]


def test_a_file_reads_only_lower_layers_and_lower_numbers_of_its_own_layer() -> None:
    ranks = {
        re.sub(r"^\d+_", "", path.stem): (LAYERS.index(path.parent.name), path.stem.partition("_")[0])
        for layer in LAYERS
        for path in (sql_folder() / layer).glob("*.sql")
    }
    violations = [
        (name, other)
        for name, sql in read_views().items()
        for other in relations_in(sql) & ranks.keys() - {name}
        if ranks[other] >= ranks[name]
    ]
    assert violations == []


def test_reports_read_no_table() -> None:
    tables = set(re.findall(r"create table (\w+)", " ".join(read_sql("migrations").values())))
    assert [
        (name, tables & relations_in(sql)) for name, sql in read_sql("reports").items() if tables & relations_in(sql)
    ] == []


@pytest.mark.parametrize(
    ("trait", "pattern"), [("clock", r"getvariable\('now'\)|\bnow\(\)|\bcurrent_"), ("windows", r"\)\s+over\s")]
)
def test_reports_declare_their_traits(trait: str, pattern: str) -> None:
    sqls = read_views()
    has_trait = {name for name, sql in sqls.items() if re.search(pattern, re.sub("--.*|'.*?'(?!\\))", "", _code(sql)))}
    while new_names := {name for name, sql in sqls.items() if has_trait & relations_in(sql)} - has_trait:
        has_trait |= new_names
    declared = {name for name, sql in read_sql("reports").items() if re.search(rf"(?m)^-- Traits: .*\b{trait}\b", sql)}
    assert declared == has_trait & read_sql("reports").keys()


def _code(sql: str) -> str:
    return sql.partition("\ncomment on ")[0]


def test_every_view_answers_in_a_notebook_without_variables(store: Store, tmp_path: Path) -> None:
    store.load(inspect(write_segment(tmp_path, [{"type": "view"}, {"type": "ai-query"}, {"type": "error"}])))
    store.checkpoint()
    copied = tmp_path / "analytics.duckdb"
    copied.write_bytes(store.path.read_bytes())
    with duckdb.connect(copied, read_only=True) as notebook:
        for view in VIEWS:
            notebook.execute(f"select * from {view}").fetchall()
        assert notebook.execute("select view_count from views").fetchall() == [(1,)]
        comments = notebook.execute("select comment from duckdb_views() where not internal").fetchall()
        assert all(comment for (comment,) in comments)


@pytest.mark.parametrize(
    "report", [report for report in REPORTS if report not in ("ai_query", "ai_queries", "ai_query_groups")]
)
def test_the_period_reaches_the_scan(report: str, store: Store, tmp_path: Path) -> None:
    # Events of every type and actions lie before and in the period, so that statistics can't select the row groups.
    times = ((None, "2020-01-01"), ("d1", "10:00"))
    events = [{"type": type, "publicId": id, "at": at} for type in REQUIRED for id, at in times]
    events += [{"type": type, "direction": "action", "at": at} for type in ACTIONS for _, at in times]
    rejected = [{"type": "scroll", "at": at, "rejected": "unknown_type"} for at in ("2020-01-01", "10:00")]
    store.load(inspect(write_segment(tmp_path, [*events, *rejected])))
    store._load_connection().execute("set variable since = timestamp '2026-11-01'")
    try:
        plan = str(store._load_connection().execute(f"explain (format json) select * from {report}").fetchall())
    finally:
        store._load_connection().execute("reset variable since")
    filtered_scan = re.search(r"SEQ_SCAN.*Filters[^}]*(occurred|received)_at\s*>=", plan.replace("\\", ""), re.DOTALL)
    assert filtered_scan, (
        f"{report} scans rows outside the period: use event_between for events, is_in_period for actions"
    )


@pytest.mark.parametrize("variable", ["deployments", "tenants"])
def test_the_scope_of_a_key_is_enforced_in_one_view(variable: str) -> None:
    pattern = f"list_contains(getvariable('{variable}')"
    assert [name for name, sql in read_views().items() if pattern in sql] == [f"is_in_{variable}"]


def test_no_view_uses_asof_full_join() -> None:
    """DuckDB 1.5.5 sometimes waits forever in an `asof full join`."""
    sqls = {name: re.sub("--.*", "", sql) for name, sql in read_views().items()}
    assert [name for name, sql in sqls.items() if re.search(r"asof\s+(full|right)", sql)] == []

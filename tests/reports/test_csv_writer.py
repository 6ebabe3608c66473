"""CSV output, and the guard against formulas in spreadsheets."""

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

import pytest

from embedsink.journal.segment import inspect
from embedsink.key_scope import EVERYTHING
from embedsink.reports.csv_writer import CsvOptions, csv_chunks
from embedsink.store.query import SelectQuery
from tests.support.given import write_segment
from tests.support.stores import open_store


def members_in_csv(folder: Path, member: str, *, guard: bool) -> list[str]:
    return members_of(folder, [{"type": "drilldown", "member": member}], guard=guard)


def members_of(folder: Path, given: list[dict[str, Any]], *, guard: bool) -> list[str]:
    text = csv_of(folder, given, guard=guard)
    return [row["member"] for row in csv.DictReader(io.StringIO(text, newline=""))]


def written_csv(folder: Path, member: str, *, guard: bool) -> str:
    return csv_of(folder, [{"type": "drilldown", "member": member}], guard=guard)


def csv_of(folder: Path, given: list[dict[str, Any]], *, guard: bool) -> str:
    folder.mkdir(exist_ok=True)
    store = open_store(folder / "store.duckdb")
    store.load(inspect(write_segment(folder, given)))
    with store.reader(EVERYTHING.variables()) as reader:
        written = b"".join(csv_chunks(reader, "drilldowns", CsvOptions(guard=guard))).decode()
    store.close()
    return written


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"])
def test_text_that_looks_like_a_formula_gets_an_apostrophe(tmp_path: Path, start: str) -> None:
    assert members_in_csv(tmp_path, f"{start}1+1", guard=True) == [f"'{start}1+1"]


@pytest.mark.parametrize("hidden", ['"', '""', "\ufeff", "\u200b", '\ufeff"', "\u2060", "\u00ad"])
def test_characters_that_a_spreadsheet_strips_hide_no_formula(tmp_path: Path, hidden: str) -> None:
    assert members_in_csv(tmp_path, f"{hidden}=1+1", guard=True) == [f"'{hidden}=1+1"]


UNSEEN = [
    *"\u202e\u2028\u2029\x01\x1f\x7f\x85\x0b\x0c\u115f\u1160\u3164\uffa0\u034f\u180e\u2066\ufe0f\ufffb",
    "\U000e0041",
    "\x01\u202e",
]


@pytest.mark.parametrize("guarded", ["'{}=1+1", "a;'{}=1+1", "{}a=1"])
def test_invisible_characters_hide_no_formula(tmp_path: Path, guarded: str) -> None:
    expected = {guarded.format(hidden) for hidden in UNSEEN}
    sent = [{"type": "drilldown", "member": text.replace("'", "")} for text in expected]
    assert set(members_of(tmp_path, sent, guard=True)) == expected


def test_invisible_characters_are_scanned_in_linear_time(tmp_path: Path) -> None:
    runs = ["\x01", "\t", ";", ";\u202e", "\r\n", '"', "\u3164"]
    sent = [{"type": "drilldown", "member": character * 9_000} for character in runs]
    started_at = time.process_time()
    assert len(members_of(tmp_path, sent, guard=True)) == len(runs)
    assert time.process_time() - started_at < 3


@pytest.mark.parametrize("separator", [";", "\t", "|", "\n", "\r\n"])
@pytest.mark.parametrize("formula", ["=1+1", '"=1+1', "\ufeff@A1", "－1"])
def test_a_formula_after_another_separator_gets_an_apostrophe(tmp_path: Path, separator: str, formula: str) -> None:
    member = f"a{separator}{formula}{separator}b"
    text = written_csv(tmp_path, member, guard=True)
    # Some programs separate cells at these characters, and respect quotation marks only at the start of a cell.
    assert not re.search(r'[;\t|\n]["\ufeff]*[=@－]', text)
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert row["member"] == f"a{separator}'{formula}{separator}b"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_text_stays_one_cell_with_any_separator(tmp_path: Path, separator: str) -> None:
    for guard in (True, False):
        text = written_csv(tmp_path / str(guard), f"a{separator}b", guard=guard)
        assert f'"a{separator}b"' in text
        assert text.count("\r\n") == 2


def test_a_row_with_one_empty_field_is_written_as_quotes(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.duckdb")
    store.load(inspect(write_segment(tmp_path, [{"type": "download"}])))
    with store.reader(EVERYTHING.variables()) as reader:
        assert b"".join(csv_chunks(reader, SelectQuery("download_audit", ("title",)))) == b'title\r\n""\r\n'
    store.close()


def test_other_text_is_unchanged(tmp_path: Path) -> None:
    for member in (" =1+1", "a;b", "a; =1", "a=1|b", "a,=1+1"):
        assert members_in_csv(tmp_path / member, member, guard=True) == [member]


def test_without_the_guard_all_text_is_unchanged(tmp_path: Path) -> None:
    assert members_in_csv(tmp_path, "=1+1", guard=False) == ["=1+1"]


def test_only_rows_with_the_selected_texts_are_read(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.duckdb")
    titles_sent = ["app", "app", "chat", "x' or 'a' = 'a"]
    given: list[dict[str, object]] = [{"type": "download", "title": title, "format": "png"} for title in titles_sent]
    store.load(inspect(write_segment(tmp_path, given)))

    def titles(*where: tuple[str, str], limit: int | None = None) -> list[str]:
        with store.reader(EVERYTHING.variables()) as reader:
            selection = SelectQuery("download_audit", ("title",), limit, where=where)
            return [title for rows in reader.rows(selection) for (title,) in rows]

    assert titles(("title", "app")) == ["app", "app"]
    assert titles(("title", "app"), limit=1) == ["app"]
    assert titles(("format", "png"), ("title", titles_sent[-1])) == [titles_sent[-1]]
    # A number in the same notation is read too, and a text that is not a number causes no error.
    assert len(titles(("deployment", "1"))) == len(titles_sent)
    assert titles(("deployment", "one")) == []
    store.close()

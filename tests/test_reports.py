"""How rows go out, and what a spreadsheet would make of them."""

import csv
import io
import re
from pathlib import Path

import pytest

from embedsink.reports import csv_chunks
from embedsink.segment import inspect
from embedsink.store import EVERYTHING, Selection, Store
from tests.given import segment


def members_in_csv(folder: Path, member: str, *, guard: bool) -> list[str]:
    text = written_csv(folder, member, guard=guard)
    return [row["member"] for row in csv.DictReader(io.StringIO(text, newline=""))]


def written_csv(folder: Path, member: str, *, guard: bool) -> str:
    folder.mkdir(exist_ok=True)
    store = Store(folder / "store.duckdb")
    store.open()
    store.load(inspect(segment(folder, [{"type": "drilldown", "member": member}])))
    with store.reader(EVERYTHING) as reader:
        written = b"".join(csv_chunks(reader, "drilldowns", guard=guard)).decode()
    store.close()
    return written


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"])
def test_text_that_a_spreadsheet_takes_for_a_formula_gets_an_apostrophe(tmp_path: Path, start: str) -> None:
    assert members_in_csv(tmp_path, f"{start}1+1", guard=True) == [f"'{start}1+1"]


@pytest.mark.parametrize("hidden", ['"', '""', "\ufeff", "\u200b", '\ufeff"', "\u2060", "\u00ad"])
def test_what_a_spreadsheet_takes_away_first_hides_no_formula(tmp_path: Path, hidden: str) -> None:
    assert members_in_csv(tmp_path, f"{hidden}=1+1", guard=True) == [f"'{hidden}=1+1"]


@pytest.mark.parametrize("separator", [";", "\t", "|", "\n", "\r\n"])
@pytest.mark.parametrize("formula", ["=1+1", '"=1+1', "\ufeff@A1", "－1"])
def test_a_formula_after_another_separator_gets_an_apostrophe(tmp_path: Path, separator: str, formula: str) -> None:
    member = f"a{separator}{formula}{separator}b"
    text = written_csv(tmp_path, member, guard=True)
    # As a program reads it that separates cells so, and heeds quotation marks only where a cell begins with them.
    assert not re.search(r'[;\t|\n]["\ufeff]*[=@－]', text)
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert row["member"] == f"a{separator}'{formula}{separator}b"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_text_stays_one_cell_whatever_separates_cells(tmp_path: Path, separator: str) -> None:
    for guard in (True, False):
        text = written_csv(tmp_path / str(guard), f"a{separator}b", guard=guard)
        assert f'"a{separator}b"' in text
        assert text.count("\r\n") == 2


def test_a_row_of_nothing_is_a_row(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.duckdb")
    store.open()
    store.load(inspect(segment(tmp_path, [{"type": "download"}])))
    with store.reader(EVERYTHING) as reader:
        assert b"".join(csv_chunks(reader, Selection("download_audit", ("title",)))) == b'title\r\n""\r\n'
    store.close()


def test_other_text_is_as_it_was_sent(tmp_path: Path) -> None:
    for member in (" =1+1", "a;b", "a; =1", "a=1|b", "a,=1+1"):
        assert members_in_csv(tmp_path / member, member, guard=True) == [member]


def test_without_the_guard_all_text_is_as_it_was_sent(tmp_path: Path) -> None:
    assert members_in_csv(tmp_path, "=1+1", guard=False) == ["=1+1"]

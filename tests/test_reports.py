"""How rows go out, and what a spreadsheet would make of them."""

import csv
import io
from pathlib import Path

import pytest

from embedsink.reports import csv_chunks
from embedsink.segment import inspect
from embedsink.store import EVERYTHING, Store
from tests.given import segment


def members_in_csv(folder: Path, member: str, *, guard: bool) -> list[str]:
    store = Store(folder / "store.duckdb")
    store.open()
    store.load(inspect(segment(folder, [{"type": "drilldown", "member": member}])))
    with store.reader(EVERYTHING) as reader:
        written = b"".join(csv_chunks(reader, "drilldowns", guard=guard)).decode()
    store.close()
    return [row["member"] for row in csv.DictReader(io.StringIO(written, newline=""))]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"])
def test_text_that_a_spreadsheet_takes_for_a_formula_gets_an_apostrophe(tmp_path: Path, start: str) -> None:
    assert members_in_csv(tmp_path, f"{start}1+1", guard=True) == [f"'{start}1+1"]


def test_other_text_is_as_it_was_sent(tmp_path: Path) -> None:
    assert members_in_csv(tmp_path, " =1+1", guard=True) == [" =1+1"]


def test_without_the_guard_all_text_is_as_it_was_sent(tmp_path: Path) -> None:
    assert members_in_csv(tmp_path, "=1+1", guard=False) == ["=1+1"]

"""Tables in a terminal."""

import pytest

from embedsink.cli.tables import print_table


def test_a_row_without_values_is_printed_as_an_empty_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["viewer"], [[None], ["a"], [None]])
    header, _, *rows = capsys.readouterr().out.split("\n")
    assert header.strip() == "viewer"
    assert [row.strip() for row in rows] == ["", "a", "", ""]

"""Templates escape their variables and reject missing ones."""

import pytest
from jinja2 import UndefinedError

from embedsink.http.pages.templating import markdown_code, render


def test_a_missing_variable_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="title"):
        render("docs/start.html", address="https://events.example.com")


def test_text_in_backticks_becomes_code_and_html_is_escaped() -> None:
    assert markdown_code("see `a<b>` & <i>") == "see <code>a&lt;b&gt;</code> &amp; &lt;i&gt;"

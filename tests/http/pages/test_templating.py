"""Templates escape what is put into them, and miss what is not."""

import pytest
from jinja2 import UndefinedError

from embedsink.http.pages.templating import marked, render


def test_a_word_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="version"):
        render("docs.html", address="https://events.example.com")


def test_names_in_backticks_are_code_and_everything_is_escaped() -> None:
    assert marked("see `a<b>` & <i>") == "see <code>a&lt;b&gt;</code> &amp; &lt;i&gt;"

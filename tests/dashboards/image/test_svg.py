"""SVG as text: values are escaped and fit into their space."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedsink.dashboards.image.svg import card, escaped, nested_svg, text_line, text_width, truncate, wrap
from tests.dashboards.image.svg_reader import parse

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


@given(TEXT)
def test_any_text_is_escaped(text: str) -> None:
    [element] = parse(f"<svg>{text_line(text, 0, 0, size=13, colour='#000')}</svg>")
    assert len(element) == 0
    assert "\u202e" not in (element.text or "")


def test_characters_that_xml_cannot_contain_become_spaces() -> None:
    assert escaped("a\x00\x1b\ud800<b>&\u202e") == "a   &lt;b&gt;&amp; "


@given(TEXT, st.floats(20, 400))
def test_a_truncated_text_fits(text: str, max_width: float) -> None:
    shown = truncate(text, 13, max_width)
    assert shown == text or shown == "…" or text_width(shown, 13) <= max_width
    assert shown == text or shown.endswith("…")


@given(TEXT, st.floats(20, 400), st.booleans())
def test_a_text_is_not_truncated_more_than_needed(text: str, max_width: float, is_bold: bool) -> None:
    shown = truncate(text, 13, max_width, is_bold=is_bold).removesuffix("…")
    if shown != text:
        longer = text[: len(shown) + 1]
        assert text.startswith(shown)
        assert longer.isspace() or longer[-1].isspace() or text_width(f"{longer}…", 13, is_bold=is_bold) > max_width


def test_a_text_is_wrapped_and_a_truncation_is_marked() -> None:
    lines = wrap("one two three four five six seven", 13, 90, lines_max=2)
    assert len(lines) == 2
    assert lines[0] == "one two three"
    assert lines[1].endswith("…")
    assert wrap("short", 13, 90, lines_max=2) == ["short"]


def test_clip_ids_of_two_charts_are_distinct() -> None:
    drawn = (
        '<svg width="1"><defs><clipPath id="clip0"/></defs><g clip-path="url(#clip0)"><text>id="clip0"</text></g></svg>'
    )
    first, second = (nested_svg(drawn, 1, 2, name=name) for name in ("a", "b"))
    assert 'id="a-clip0"' in first
    assert "url(#a-clip0)" in first
    assert 'id="b-clip0"' in second
    assert '<text>id="clip0"</text>' in first
    assert first.startswith('<svg x="1.0" y="2.0" width="1">')


def test_a_tile_is_drawn_within_its_box() -> None:
    [rect] = parse(f"<svg>{card(0, 0, 100, 50, background='#fff', border='#eee')}</svg>")
    assert (rect.get("width"), rect.get("height")) == ("99.0", "49.0")


@pytest.mark.parametrize(("wider", "narrower"), [("W", "i"), ("漢", "a"), ("AB", "ab")])
def test_wider_texts_have_greater_estimated_widths(wider: str, narrower: str) -> None:
    assert text_width(wider, 10) > text_width(narrower, 10)
    assert text_width("a", 10, is_bold=True) > text_width("a", 10)

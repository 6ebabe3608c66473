"""SVG elements as text: escaped, and truncated to the available width."""

import re
from bisect import bisect_right
from itertools import accumulate
from math import inf
from xml.sax.saxutils import escape, quoteattr

# vl-convert ships this font. It has the metrics of Arial and Helvetica, so measured texts fit everywhere.
FONT = "'Liberation Sans', Arial, Helvetica, sans-serif"
# More than any label can show. Vega would measure longer texts for minutes before truncating them.
TEXT_CHARACTERS_MAX = 200
# Character widths as shares of the font size.
_WIDTHS = dict.fromkeys("ijl'|,.:;!I ", 0.28) | dict.fromkeys('frt()[]/-"*', 0.34) | dict.fromkeys("mwMW%@", 0.86)
_DEFAULT_WIDTH = 0.556
_UPPERCASE_WIDTH = 0.68
_OTHER_SCRIPT_WIDTH = 0.6
_EAST_ASIAN_WIDTH = 1.0
# East Asian characters begin with the CJK radicals.
_EAST_ASIAN_START = 0x2E80
# The width of bold text as a share of the width of normal text.
_BOLD_FACTOR = 1.07
# No line shows more characters, and measuring a long text is slow.
_MEASURED_CHARACTERS_MAX = 1_000
# Characters that XML can't represent, and bidirectional controls.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]")
_TAG = re.compile(r"<[^>]+>")
# The start of each attribute that defines or refers to an id.
_ID_ATTRIBUTE = re.compile(r'(\bid="|url\(#|href="#)')


def strip_unsafe(text: str) -> str:
    """Return a text without characters that XML can't represent and without bidirectional controls."""
    return _UNSAFE.sub(" ", text)


def escaped(text: object) -> str:
    """Return a text escaped for the content of an element."""
    return escape(strip_unsafe(str(text)))


def text_width(text: str, size: float, *, is_bold: bool = False) -> float:
    """Return the approximate width of a line of text."""
    return sum(map(_character_width, text)) * size * (_BOLD_FACTOR if is_bold else 1)


def truncate(text: str, size: float, width_max: float, *, is_bold: bool = False) -> str:
    """Return a text truncated to a width, with an ellipsis if it is shortened."""
    text = text[:_MEASURED_CHARACTERS_MAX]
    if text_width(text, size, is_bold=is_bold) <= width_max:
        return text
    weight_factor = _BOLD_FACTOR if is_bold else 1
    ellipsis_width = _character_width("…")
    # The widths of the first character, the first two characters and so on, as shares of the font size.
    widths = list(accumulate(map(_character_width, text)))
    fitting_count = bisect_right(widths, width_max, key=lambda width: (width + ellipsis_width) * size * weight_factor)
    return f"{text[:fitting_count].rstrip()}…"


def wrap(text: str, size: float, width_max: float, *, lines_max: int) -> list[str]:
    """Return the lines of a text wrapped to a width. The last line is truncated if the text needs more lines."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        # A line begins with at least one word, even if the word is too long.
        if text_width(longer, size) <= width_max or not lines[-1]:
            lines[-1] = longer
        elif len(lines) == lines_max:
            lines[-1] = truncate(longer, size, width_max)
            break
        else:
            lines.append(word)
    return lines


def text_line(
    text: str,
    x: float,
    y: float,
    *,
    size: float,
    colour: str,
    is_bold: bool = False,
    anchor: str = "start",
    width_max: float = inf,
) -> str:
    """Return a line of text with its baseline at `y`, truncated to a width."""
    text = truncate(text, size, width_max, is_bold=is_bold)
    weight = ' font-weight="700"' if is_bold else ""
    end = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}"{weight}{end}>{escaped(text)}</text>'


def card(x: float, y: float, width: float, height: float, *, background: str, border: str) -> str:
    """Return the card of a tile: a rectangle in the colour `background`, with a border in the colour `border`."""
    # The border is 1 px wide, so its middle is half a pixel inside the tile.
    box = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{width - 1:.1f}" height="{height - 1:.1f}"'
    return f'<rect {box} rx="10" fill="{background}" stroke="{border}"/>'


def rule(left: float, right: float, y: float, *, colour: str) -> str:
    """Return a horizontal line."""
    return f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'


def nested_svg(svg: str, x: float, y: float, *, name: str) -> str:
    """Return an SVG nested at a position. `name` prefixes its ids, because every chart has the id `clip0`."""

    def prefix_ids(tag: re.Match[str]) -> str:
        return _ID_ATTRIBUTE.sub(rf"\g<1>{name}-", tag[0])

    without_prolog = svg[svg.index("<svg") :]
    # Change tags only, because texts can contain `id="` too.
    inner = _TAG.sub(prefix_ids, without_prolog)
    return inner.replace("<svg", f'<svg x="{x:.1f}" y="{y:.1f}"', 1)


def group(label: str, *parts: str) -> str:
    """Return a group with a label for screen readers."""
    return f'<g role="group" aria-label={quoteattr(strip_unsafe(label))}>{"".join(parts)}</g>'


def _character_width(character: str) -> float:
    """Return the approximate width of a character as a share of the font size."""
    if character in _WIDTHS:
        return _WIDTHS[character]
    if character.isascii():
        return _UPPERCASE_WIDTH if character.isupper() else _DEFAULT_WIDTH
    return _EAST_ASIAN_WIDTH if ord(character) >= _EAST_ASIAN_START else _OTHER_SCRIPT_WIDTH

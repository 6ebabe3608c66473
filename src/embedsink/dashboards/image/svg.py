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
# Character widths as shares of the font size; `_WIDTH` is the default.
_WIDTHS = dict.fromkeys("ijl'|,.:;!I ", 0.28) | dict.fromkeys('frt()[]/-"*', 0.34) | dict.fromkeys("mwMW%@", 0.86)
_WIDTH, _WIDTH_UPPER, _WIDTH_WIDE, _WIDTH_BOLD = 0.556, 0.68, 1.0, 1.07
# Characters that XML can't represent, and bidirectional controls.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]")
_TAG = re.compile(r"<[^>]+>")
_NAME = re.compile(r'(\bid="|url\(#|href="#)')


def strip_unsafe(text: str) -> str:
    """Return a text without characters that XML can't represent and without bidirectional controls."""
    return _UNSAFE.sub(" ", text)


def escaped(text: object) -> str:
    """Return a text escaped for the content of an element."""
    return escape(strip_unsafe(str(text)))


def text_width(text: str, size: float, *, is_bold: bool = False) -> float:
    """Return the approximate width of a line of text."""
    return sum(map(_width, text)) * size * (_WIDTH_BOLD if is_bold else 1)


def truncate(text: str, size: float, width_max: float, *, is_bold: bool = False) -> str:
    """Return a text truncated to a width, with an ellipsis if it is shortened."""
    text = text[:1_000]
    if text_width(text, size, is_bold=is_bold) <= width_max:
        return text
    weight = _WIDTH_BOLD if is_bold else 1
    widths = list(accumulate(map(_width, text)))
    fitting = bisect_right(widths, width_max, key=lambda width: (width + _width("…")) * size * weight)
    return f"{text[:fitting].rstrip()}…"


def wrap(text: str, size: float, width_max: float, *, lines_max: int) -> list[str]:
    """Return the lines of a text wrapped to a width."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) <= width_max or not lines[-1]:
            lines[-1] = longer
        elif len(lines) == lines_max:
            lines[-1] = truncate(f"{lines[-1]} {word} …", size, width_max)
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


def card(x: float, y: float, width: float, height: float, *, background: str, line: str) -> str:
    """Return the background of a tile."""
    box = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{width - 1:.1f}" height="{height - 1:.1f}"'
    return f'<rect {box} rx="10" fill="{background}" stroke="{line}"/>'


def rule(left: float, right: float, y: float, *, colour: str) -> str:
    """Return a horizontal line."""
    return f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'


def nested_svg(svg: str, x: float, y: float, *, name: str) -> str:
    """Return an SVG nested at a position. A prefix makes its ids unique, because every chart has a `clip0`."""
    inner = _TAG.sub(lambda tag: _NAME.sub(rf"\g<1>{name}-", tag[0]), svg[svg.index("<svg") :])
    return inner.replace("<svg", f'<svg x="{x:.1f}" y="{y:.1f}"', 1)


def group(label: str, *parts: str) -> str:
    """Return a group with a label for screen readers."""
    return f'<g role="group" aria-label={quoteattr(strip_unsafe(label))}>{"".join(parts)}</g>'


def _width(character: str) -> float:
    if character in _WIDTHS:
        return _WIDTHS[character]
    if character.isascii():
        return _WIDTH_UPPER if character.isupper() else _WIDTH
    return _WIDTH_WIDE if ord(character) > 0x2E7F else 0.6

"""SVG as text: what is put into it is escaped, and cut to the room that there is."""

import re
from bisect import bisect_right
from xml.sax.saxutils import escape, quoteattr

# It has the widths of Arial and Helvetica, and vl-convert brings it: what is measured here fits everywhere.
FONT = "'Liberation Sans', Arial, Helvetica, sans-serif"
# More than any label has room for. What draws charts measures longer ones for minutes, and then cuts them.
TEXT_CHARACTERS_MAX = 200
# Shares of the size of the font; of most others it is `_WIDTH`.
_WIDTHS = dict.fromkeys("ijl'|,.:;!I ", 0.28) | dict.fromkeys('frt()[]/-"*', 0.34) | dict.fromkeys("mwMW%@", 0.86)
_WIDTH, _WIDTH_UPPER, _WIDTH_WIDE, _WIDTH_BOLD = 0.556, 0.68, 1.0, 1.07
# What XML can't hold, and what would turn the text around it.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]")
_TAG = re.compile(r"<[^>]+>")
_NAME = re.compile(r'(\bid="|url\(#|href="#)')


def strip_unsafe(text: str) -> str:
    """A text without what an SVG can't hold, and without what turns or hides the text around it."""
    return _UNSEEN.sub(" ", text)


def escaped(text: object) -> str:
    """A text for the content of an element."""
    return escape(strip_unsafe(str(text)))


def text_width(text: str, size: float, *, is_bold: bool = False) -> float:
    """How wide a line of text is, about."""
    wide = sum(_width(one) for one in text) * size
    return wide * _WIDTH_BOLD if is_bold else wide


def truncate(text: str, size: float, room: float, *, is_bold: bool = False) -> str:
    """As much of a text as there is room for, with an ellipsis where that is not all."""
    text = text[:1_000]
    if text_width(text, size, is_bold=is_bold) <= room:
        return text
    fitting = bisect_right(
        range(len(text)), room, key=lambda count: text_width(f"{text[:count]}…", size, is_bold=is_bold)
    )
    return f"{text[: max(0, fitting - 1)].rstrip()}…"


def wrap(text: str, size: float, room: float, *, lines_max: int) -> list[str]:
    """A text in lines."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if text_width(longer, size) <= room or not lines[-1]:
            lines[-1] = longer
        elif len(lines) == lines_max:
            lines[-1] = truncate(f"{lines[-1]} {word} …", size, room)
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
) -> str:
    """A line of text; `y` is where it stands."""
    weight = ' font-weight="700"' if is_bold else ""
    end = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}"{weight}{end}>{escaped(text)}</text>'


def card(x: float, y: float, width: float, height: float, *, ground: str, line: str) -> str:
    """The ground of a tile."""
    where = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{width - 1:.1f}" height="{height - 1:.1f}"'
    return f'<rect {where} rx="10" fill="{ground}" stroke="{line}"/>'


def nested_svg(svg: str, x: float, y: float, *, name: str) -> str:
    """Another SVG in its place, its ids made its own by a name: two charts both have a `clip0`."""
    inner = _TAG.sub(lambda tag: _NAME.sub(rf"\g<1>{name}-", tag[0]), svg[svg.index("<svg") :])
    return inner.replace("<svg", f'<svg x="{x:.1f}" y="{y:.1f}"', 1)


def group(label: str, *parts: str) -> str:
    """Parts that belong together, and what they are for who can't see them."""
    return f'<g role="group" aria-label={quoteattr(strip_unsafe(label))}>{"".join(parts)}</g>'


def _width(one: str) -> float:
    if one in _WIDTHS:
        return _WIDTHS[one]
    if one.isascii():
        return _WIDTH_UPPER if one.isupper() else _WIDTH
    return _WIDTH_WIDE if ord(one) > 0x2E7F else 0.6

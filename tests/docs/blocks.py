"""The fenced blocks and the inline code of all pages of the documentation."""

import re
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


class Block(NamedTuple):
    """A fenced block: its page, its language and its text."""

    page: str
    language: str
    text: str


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(*languages: str) -> list[Block]:
    """Return all blocks of these languages, or of every language, in the order of the pages."""
    matches = [
        Block(path.relative_to(ROOT).as_posix(), language, text)
        for path in PAGES
        for language, text in _BLOCK.findall(_read(path))
    ]
    return [block for block in matches if not languages or block.language in languages]


def inline(beginning: str) -> list[tuple[str, str]]:
    """Return all inline code with this beginning, each with its page."""
    return [
        (path.relative_to(ROOT).as_posix(), code)
        for path in PAGES
        for code in _INLINE.findall(_BLOCK.sub("", _read(path)))
        if code.startswith(beginning)
    ]

"""A parsed HTML page: its tables by label, headings, ids and links."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "br", "img"})


@dataclass
class Table:
    """A table: the texts of its cells, row by row without the head, and the targets of its links."""

    rows: list[list[str]] = field(default_factory=list)
    links: list[list[str]] = field(default_factory=list)


class Page(HTMLParser):
    """A parsed page. Parsing raises AssertionError if tags don't match."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: dict[str, Table] = {}
        self.headings: list[tuple[int, str]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.code: dict[str, str] = {}
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(html)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.attributes |= given.keys()
        self.ids += [given["id"]] if "id" in given else []
        if tag == "a":
            self.links.append(given["href"])
            if table := self._table():
                table.links[-1].append(given["href"])
        if tag == "table":
            self.tables[given["aria-label"]] = Table()
        if tag == "tr" and (table := self._table()):
            table.rows.append([])
            table.links.append([])
        if tag not in VOID:
            self._open.append((tag, given, []))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data
        for _, _, texts in self._open:
            texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        opened, given, texts = self._open.pop()
        assert opened == tag, f"<{opened}> is ended by </{tag}>"
        text = "".join(texts)
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.headings.append((int(tag[1]), " ".join(text.split())))
        if tag == "pre":
            self.code[given["aria-label"]] = text
        if tag in ("th", "td") and (table := self._table()):
            table.rows[-1].append(" ".join(text.split()))

    def _table(self) -> Table | None:
        """Return the table whose body is being parsed."""
        if not any(tag == "tbody" for tag, _, _ in self._open):
            return None
        return next(self.tables[given["aria-label"]] for tag, given, _ in self._open if tag == "table")

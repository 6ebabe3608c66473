"""Where the demo shows itself: steps, bars and the live line. Plain lines where stdout is no terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

WIDTH_MAX = 100
PLAIN_LINE_EVERY_S = 10.0
_LABEL_CELLS = 13


class Screen:
    """The terminal, or whatever stdout is."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if isinstance(self.console.file, TextIOWrapper):
            # A terminal without Unicode shows question marks, which beats ending in the middle.
            self.console.file.reconfigure(errors="replace")
        self.console.width = min(self.console.width, WIDTH_MAX)

    def say(self, text: str = "", style: str = "") -> None:
        """A line as it is, never wrapped: commands on it can be copied."""
        self.console.print(Text(text, style), soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        """A table, or anything else that fits itself to the width."""
        self.console.print(what)

    def headline(self, text: str) -> None:
        """The beginning of a part."""
        self.say()
        self.console.rule(Text(text, "bold cyan"), align="left", style="cyan")

    def done(self, label: str, text: str) -> None:
        """A step that is behind us."""
        line = Text.assemble(("  ✓ ", "bold green"), (label.ljust(_LABEL_CELLS), "bold"), text)
        self.console.print(line, soft_wrap=True)

    def point(self, label: str, text: str) -> None:
        """Something to know, with its name."""
        self.console.print(Text.assemble("  ", (label.ljust(_LABEL_CELLS), "bold"), text), soft_wrap=True)

    def address(self, label: str, url: str) -> None:
        """Where to go next."""
        self.console.print(Text.assemble(f"  {label} ", (url, "bold underline")), soft_wrap=True)

    @contextmanager
    def bar(self, label: str, total: int) -> Iterator["Bar"]:
        """A bar while something takes long; nothing where there is no terminal."""
        progress = Progress(
            TextColumn("  [bold cyan]▸[/] [bold]{task.description}"),
            BarColumn(None, complete_style="cyan", finished_style="green"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with progress:
            yield Bar(progress, progress.add_task(label.ljust(_LABEL_CELLS), total=total))

    @contextmanager
    def live_line(self) -> Iterator["LiveLine"]:
        """Two lines that change in place; without a terminal, the counts from time to time."""
        if not self.console.is_terminal:
            yield LiveLine(self, None)
            return
        with Live(Text(), console=self.console, transient=True, refresh_per_second=8) as live:
            yield LiveLine(self, live)


class Bar:
    """A running bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def show(self, completed: int) -> None:
        """How far it is."""
        self._progress.update(self._task, completed=completed)


class LiveLine:
    """The counts of the live traffic, and its newest event."""

    def __init__(self, screen: Screen, live: Live | None) -> None:
        self._screen = screen
        self._live = live
        self._due_at = time.monotonic() + PLAIN_LINE_EVERY_S

    def show(self, counts: str, newest: str) -> None:
        """What was counted so far, and below it what came last."""
        if self._live is not None:
            lines = Text.assemble(("  ● ", "bold red"), (counts, "bold"), "\n    ", (newest, "dim"))
            self._live.update(Text(lines.plain, spans=lines.spans, no_wrap=True, overflow="ellipsis"))
        elif time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + PLAIN_LINE_EVERY_S
            self._screen.say(f"  {counts}")

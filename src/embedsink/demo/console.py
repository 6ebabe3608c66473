"""The demo's terminal output. Progress bars and the live line are shown on terminals only, not in files and pipes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

WIDTH_MAX = 100
_LABEL_WIDTH = 13


class Terminal:
    """Standard output, at most 100 columns wide."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        if isinstance(self.console.file, TextIOWrapper):
            # On a terminal without Unicode, print question marks instead of raising a UnicodeEncodeError.
            self.console.file.reconfigure(errors="replace")
        self.console.width = min(self.console.width, WIDTH_MAX)

    def line(self, text: str | Text = "", style: str = "") -> None:
        """Print a line without wrapping, so that commands can be copied. `style` applies to a `str` only."""
        styled = Text(text, style) if isinstance(text, str) else text
        self.console.print(styled, soft_wrap=True)

    def show(self, renderable: RenderableType) -> None:
        """Print a renderable of the rich library, such as a table, fitted to the width."""
        self.console.print(renderable)

    def heading(self, text: str) -> None:
        """Print the heading of a section."""
        self.line()
        self.console.rule(Text(text, "bold cyan"), align="left", style="cyan")

    def done(self, label: str, text: str) -> None:
        """Print a finished step with a check mark."""
        self.line(Text.assemble(("  ✓ ", "bold green"), (label.ljust(_LABEL_WIDTH), "bold"), text))

    def labeled(self, label: str, value: str) -> None:
        """Print a value with its label."""
        self.line(Text.assemble("  ", (label.ljust(_LABEL_WIDTH), "bold"), value))

    def link(self, label: str, url: str) -> None:
        """Print a URL to open."""
        self.line(Text.assemble(f"  {label} ", (url, "bold underline")))

    @contextmanager
    def progress_bar(self, label: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a progress bar on terminals until the block ends. Yield a function that sets the completed count."""
        progress = Progress(
            TextColumn("  [bold cyan]▸[/] [bold]{task.description}"),
            BarColumn(bar_width=None, complete_style="cyan", finished_style="green"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        with progress:
            task = progress.add_task(label.ljust(_LABEL_WIDTH), total=total)
            yield lambda completed_count: progress.update(task, completed=completed_count)

    @contextmanager
    def live_line(self) -> Iterator[Callable[[str, str], None]]:
        """Show counts and the newest event on terminals until the block ends. Yield a function that sets both."""
        with Live(Text(), console=self.console, transient=True, refresh_per_second=8) as live:

            def update(counts: str, newest_event: str) -> None:
                lines = Text.assemble(("  ● ", "bold red"), (counts, "bold"), "\n    ", (newest_event, "dim"))
                lines.no_wrap = True
                lines.overflow = "ellipsis"
                live.update(lines)

            yield update

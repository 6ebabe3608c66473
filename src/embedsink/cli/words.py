"""The options that several commands share, each with its name, its meaning and its check."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from embedsink.errors import Misconfigured

T = TypeVar("T")


def examples(*commands: str) -> str:
    """The end of a command's `--help`: how it is really typed."""
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """A parser for an option: what can't be read is wrong use, exit code 2."""

    def parse(text: str) -> T:
        try:
            return read(text)
        except Misconfigured as error:
            raise typer.BadParameter(str(error)) from None

    return parse


Data = Annotated[
    Path,
    typer.Option("--data", metavar="DIR", envvar="EMBEDSINK_DATA", help="The data folder.", file_okay=False),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Ask this server, and not the data folder."),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        envvar="EMBEDSINK_KEY",
        # The environment keeps it out of the shell's history; and it is never shown as a default.
        show_envvar=True,
        show_default=False,
        help="The key for --url. Better set in the environment: a command line is seen by others.",
    ),
]
DATA = Path("data")


def existing(data: Path) -> Path:
    """The data folder, which this command does not make.

    Raises:
        Misconfigured: it does not exist.
    """
    if not data.is_dir():
        raise Misconfigured(
            f"data folder {data}: does not exist. Name the one that `embedsink serve` writes with --data."
        )
    return data

"""The options that several commands share, each with its name, its meaning and its check."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from embedsink.auth.parsing import parse_deployment
from embedsink.data_folder import FolderTaken
from embedsink.errors import Misconfigured

if TYPE_CHECKING:
    from embedsink.client.http_client import HttpClient

T = TypeVar("T")


def examples(*commands: str) -> str:
    """The end of a command's `--help`: how it is really typed."""
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])


@contextmanager
def wrong_use() -> Iterator[None]:
    """What is misconfigured in here was typed wrongly: exit code 2."""
    try:
        yield
    except Misconfigured as error:
        raise typer.BadParameter(str(error)) from None


def checked(read: Callable[[str], T]) -> Callable[[str], T]:
    """A parser for an option: what can't be read is wrong use, exit code 2."""

    def parse(text: str) -> T:
        with wrong_use():
            return read(text)

    return parse


def _data_folder(text: str | Path) -> Path:
    if text == "":
        raise typer.BadParameter("is empty, perhaps an unset variable. Name a folder; this one is `.`.")
    if Path(text).is_file():
        raise typer.BadParameter(f"{text}: is a file. Name a folder.")
    return Path(text)


def _told(context: typer.Context, data: Path) -> Path:
    # An empty variable counts as unset otherwise, and the events would go to another folder than was meant.
    source = context.get_parameter_source("data")
    if source and source.name == "DEFAULT" and os.environ.get("EMBEDSINK_DATA") == "":
        raise typer.BadParameter("EMBEDSINK_DATA is empty. Name a folder in it, or unset it.")
    return data


Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIR",
        envvar="EMBEDSINK_DATA",
        help="The data folder.",
        parser=_data_folder,
        callback=_told,
    ),
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
# The scope, for what shows it (docs/reports.md).
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="From this time on: 2026-11-01, 2026-11-01T09:30Z or 7d.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")]
Surface = Annotated[str | None, typer.Option(metavar="NAME", help="On dashboard, app or chat alone.")]
Deployments = Annotated[
    list[int] | None,
    typer.Option(
        "--deployment", metavar="N", help="Of this deployment alone. Repeatable.", parser=checked(parse_deployment)
    ),
]
Tenant = Annotated[str | None, typer.Option(metavar="TEXT", help="Of this tenant alone.")]
Timezone = Annotated[
    str | None, typer.Option(metavar="NAME", help="Days begin there at midnight, and times mean its clocks; else UTC.")
]


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


def as_of(data: Path, url: str | None) -> tuple[str, str]:
    """Of when an answer is, and when it shows more, in words: of a folder its last snapshot, of a server now."""
    from embedsink.data_folder import DataFolder

    if url is not None:
        return "now", "about a second after it came in"
    moment = datetime.fromtimestamp(DataFolder(data).snapshot.stat().st_mtime, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC, the last snapshot", "in the next one"


def same_place(data: Path, url: str | None) -> str:
    """How the folder or the server of a command is named to another command."""
    return f"--data {data}" if url is None else f"--url {url}"


def server_at(url: str, key: str | None) -> "HttpClient":
    """The server of --url. An address or a key that can't be one is wrong use."""
    from embedsink.client.http_client import HttpClient

    with wrong_use():
        return HttpClient(url, key)


@contextmanager
def or_through_a_server() -> Iterator[None]:
    """For commands that need the data folder for themselves, and can also ask the server that has it."""
    try:
        yield
    except FolderTaken as error:
        raise Misconfigured(f"{error.holder}. Ask that server with --url and a key, or stop it.") from None

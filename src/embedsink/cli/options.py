"""The options that several commands share."""

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


class WrongUse(typer.BadParameter):
    """Wrong use of a command: the usage, the message, and exit code 2."""

    def format_message(self) -> str:
        """Return the message without typer's prefix, since it begins with the option."""
        return self.message


def examples(*commands: str) -> str:
    """Return the examples at the end of a command's `--help`."""
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])


@contextmanager
def wrong_use(option: str | None = None) -> Iterator[None]:
    """Convert a configuration error to wrong use.

    Args:
        option: replaces the name at the beginning of the message.
    """
    try:
        yield
    except Misconfigured as error:
        message = str(error)
        raise WrongUse(message if option is None else f"{option}: {message.partition(': ')[2]}") from None


def parser(option: str, parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a parser for the values of an option. Invalid values are wrong use."""

    def parse_option(text: str) -> T:
        with wrong_use(option):
            return parse(text)

    return parse_option


def _data_folder(text: str | Path) -> Path:
    if text == "":
        raise WrongUse("--data: is empty, perhaps an unset variable. Name a folder; the current one is `.`.")
    if Path(text).is_file():
        raise WrongUse(f"--data: {text} is a file. Name a folder.")
    return Path(text)


def _reject_empty_variable(context: typer.Context, data: Path) -> Path:
    # typer treats an empty variable as unset, and would use the default folder.
    source = context.get_parameter_source("data")
    if source and source.name == "DEFAULT" and os.environ.get("EMBEDSINK_DATA") == "":
        raise WrongUse("EMBEDSINK_DATA: is empty. Set it to a folder, or unset it.")
    return data


DATA = Path("data")
Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIR",
        envvar="EMBEDSINK_DATA",
        help="The data folder.",
        parser=_data_folder,
        callback=_reject_empty_variable,
    ),
]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Use this server instead of a data folder.")]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        envvar="EMBEDSINK_KEY",
        # The environment keeps the key out of the shell's history. A default would show it in --help.
        show_envvar=True,
        show_default=False,
        help="The key for --url. Prefer the environment variable: other users can read command lines.",
    ),
]
# The scope of a report (docs/reports.md).
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Start, such as 2026-11-01, 2026-11-01T09:30Z or 7d (7 days ago).")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="End, exclusive.")]
Surface = Annotated[str | None, typer.Option(metavar="NAME", help="Only this surface: dashboard, app or chat.")]
Deployments = Annotated[
    list[int] | None,
    typer.Option(
        "--deployment",
        metavar="N",
        help="Only this deployment. Repeatable.",
        parser=parser("--deployment", parse_deployment),
    ),
]
Tenant = Annotated[str | None, typer.Option(metavar="TEXT", help="Only this tenant.")]
Timezone = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The time zone of days and of times without an offset, such as Europe/Berlin. Default: UTC.",
    ),
]


def freshness(data: Path, url: str | None) -> tuple[str, str]:
    """Return the time of a source's data, and when newer data appears, as phrases for a message."""
    from embedsink.data_folder import DataFolder

    if url is not None:
        return "now", "about a second after they are received"
    snapshot_at = datetime.fromtimestamp(DataFolder(data).snapshot.stat().st_mtime, UTC)
    return f"{snapshot_at:%Y-%m-%d %H:%M:%S} UTC, the last snapshot", "in the next snapshot"


def source_option(data: Path, url: str | None) -> str:
    """Return the option that names the same data folder or server in another command."""
    return f"--data {data}" if url is None else f"--url {url}"


def connect(url: str, key: str | None) -> "HttpClient":
    """Return a client of the server of --url. A malformed URL or key is wrong use."""
    from embedsink.client.http_client import HttpClient

    try:
        return HttpClient(url, key)
    except Misconfigured as error:
        raise WrongUse(f"--{error}") from None


@contextmanager
def suggesting_url() -> Iterator[None]:
    """Add the advice to use --url to the error that a server has the data folder open."""
    try:
        yield
    except FolderTaken as error:
        raise Misconfigured(f"{error.problem}. Use that server with --url and a key, or stop it.") from None

"""The options that several commands share."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from embedsink.auth.parsing import parse_deployment
from embedsink.data_folder import DataFolder, FolderTaken
from embedsink.errors import Misconfigured

if TYPE_CHECKING:
    from embedsink.client.http_client import HttpClient

T = TypeVar("T")


class UsageError(typer.BadParameter):
    """A wrong option or argument. typer prints the usage and the message, and exits with code 2."""

    def format_message(self) -> str:
        """Return the message without typer's prefix, because the message already begins with the option."""
        return self.message


def examples(*commands: str) -> str:
    """Return the examples at the end of a command's `--help`."""
    keep_line_breaks = "\b"  # click wraps a paragraph unless it begins with this character.
    return "\n".join([keep_line_breaks, "Examples:", *(f"  {command}" for command in commands)])


@contextmanager
def usage_errors(option: str | None = None) -> Iterator[None]:
    """Convert Misconfigured to a usage error.

    Args:
        option: the option that replaces the name before the first colon of the message; None to keep the name.
    """
    try:
        yield
    except Misconfigured as error:
        message = str(error)
        if option is not None:
            _, _, problem = message.partition(": ")
            message = f"{option}: {problem}"
        raise UsageError(message) from None


def option_parser(option: str, parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a parser of option values that calls `parse`, but raises a usage error for an invalid value."""

    def parse_option(text: str) -> T:
        with usage_errors(option):
            return parse(text)

    return parse_option


def _parse_data_folder(text: str | Path) -> Path:
    """Return the path of a data folder, or raise a usage error if the text is empty or the path is a file.

    `text` is the value of --data, or the default, which is a `Path`.
    """
    if text == "":
        raise UsageError("--data: is empty, perhaps an unset variable. Name a folder; the current one is `.`.")
    if Path(text).is_file():
        raise UsageError(f"--data: {text} is a file. Name a folder.")
    return Path(text)


def _reject_empty_variable(context: typer.Context, data: Path) -> Path:
    """Return the data folder, or raise a usage error if EMBEDSINK_DATA is empty and --data is missing."""
    # typer treats an empty variable as unset, and would use the default folder.
    source = context.get_parameter_source("data")
    # Compare the name, because newer versions of typer have their own copy of click's enum.
    is_default = source is not None and source.name == "DEFAULT"
    if is_default and os.environ.get("EMBEDSINK_DATA") == "":
        raise UsageError("EMBEDSINK_DATA: is empty. Set it to a folder, or unset it.")
    return data


DATA = Path("data")
Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIR",
        envvar="EMBEDSINK_DATA",
        help="The data folder.",
        parser=_parse_data_folder,
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
        parser=option_parser("--deployment", parse_deployment),
    ),
]
# A person who is known in one deployment only.
OneDeployment = Annotated[
    int | None,
    typer.Option(
        "--deployment",
        metavar="N",
        help="The viewer, only in this deployment.",
        parser=option_parser("--deployment", parse_deployment),
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        metavar="A,B", help="Rows per department, per group, or both: department,group. A few reports have it."
    ),
]
Department = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only viewers in this department of the directory, as for --by.")
]
Group = Annotated[str | None, typer.Option(metavar="TEXT", help="Only viewers in this group of the directory.")]
Tenant = Annotated[str | None, typer.Option(metavar="TEXT", help="Only this tenant.")]
Vendor = Annotated[str | None, typer.Option(metavar="TEXT", help="Only embeds of this vendor, such as looker.")]
Internal = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Events of internal people: exclude (the default), include or only."),
]
Timezone = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The time zone of days and of times without an offset, such as Europe/Berlin. Default: UTC.",
    ),
]


UNKNOWN_VIEWER = (
    "Warning: nothing names this viewer. Ids are compared exactly: check case and spelling, --tenant and --deployment."
)


def as_of_phrase(data: Path, url: str | None) -> str:
    """Return how recent the data is, for a message: `as of now` for a server, else `as of` the snapshot's time."""
    if url is not None:
        return "as of now"
    return f"as of {snapshot_time(data):%Y-%m-%d %H:%M:%S} UTC, the last snapshot"


def snapshot_time(data: Path) -> datetime:
    """Return the time at which the last snapshot of a data folder was published."""
    return datetime.fromtimestamp(DataFolder(data).snapshot.stat().st_mtime, UTC)


def when_new_data_appears(url: str | None) -> str:
    """Return when new data appears in reports, for a message such as `New events appear …`."""
    return "in the next snapshot" if url is None else "about a second after they are received"


def source_option(data: Path, url: str | None) -> str:
    """Return the option that selects this server or data folder, for a suggested command."""
    return f"--data {data}" if url is None else f"--url {url}"


def connect(url: str, key: str | None) -> "HttpClient":
    """Return a client of the server at --url.

    Raises:
        UsageError: the URL or the key is malformed, or the key is missing.
    """
    from embedsink.client.http_client import HttpClient

    try:
        return HttpClient(url, key)
    except Misconfigured as error:
        # The message begins with `url:` or `key:`, and both are options.
        raise UsageError(f"--{error}") from None


@contextmanager
def suggesting_url() -> Iterator[None]:
    """If a server has the data folder open, raise an error that recommends --url."""
    try:
        yield
    except FolderTaken as error:
        raise Misconfigured(f"{error.problem}. Use that server with --url and a key, or stop it.") from None

"""The output of commands: results on stdout, messages on stderr, and no control characters of terminals."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

FAILED = 1
USAGE_ERROR = 2


def print_message(text: str) -> None:
    """Print a message on stderr, so that stdout contains only the result."""
    typer.echo(text, err=True)


def print_json(value: object) -> None:
    """Print a value as indented JSON, with control characters escaped."""
    typer.echo(escape_control(json.dumps(value, indent=2, ensure_ascii=False)))


def fail(error: Exception | str, *, code: int = FAILED) -> NoReturn:
    """Print an error message in red on stderr, and exit."""
    typer.secho(escape_control(error), fg=typer.colors.RED, err=True)
    sys.exit(code)


def escape_control(value: object) -> str:
    r"""Return a value as text with control characters escaped, such as `\u001b`. Line breaks are retained.

    A sender's text may contain an escape sequence that changes the terminal.
    """
    return "".join(_escape_character(character) for character in str(value))


def _escape_character(character: str) -> str:
    """Return a character, escaped as in JSON unless it is printable or a line break."""
    if character.isprintable() or character == "\n":
        return character
    return json.dumps(character).strip('"')


def require_writable(file: Path) -> None:
    """Exit with an error message if a file can't be written, before something that can't be undone."""
    if file.is_dir():
        fail(f"{file}: is a folder. Choose another path.")
    with atomic_write(file, replaces=False) as temporary:
        temporary.touch()


@contextmanager
def atomic_write(file: Path, *, mode: int | None = None, replaces: bool = True) -> Iterator[Path]:
    """Yield a temporary path. After the `with` block, rename it to `file`, so that `file` is never incomplete.

    If writing or renaming fails, print an error message and exit.

    Args:
        file: the path.
        mode: the permissions; None for those of the umask.
        replaces: whether `file` is written; otherwise, only check that it can be.
    """
    temporary = file.with_name(f"{file.name}.part")
    try:
        if mode is not None:
            temporary.unlink(missing_ok=True)  # of a killed process, with other permissions
            temporary.touch(mode=mode)
        yield temporary
        if replaces:
            temporary.replace(file)
    except OSError as error:
        fail(f"{file}: {error.strerror}. Choose another path.")
    finally:
        temporary.unlink(missing_ok=True)

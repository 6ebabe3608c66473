"""The output of commands: results on stdout, messages on stderr, no terminal control characters."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

FAILED = 1
WRONG_USE = 2


def print_message(text: str) -> None:
    """Print a message on stderr, so that stdout has the result only."""
    typer.echo(text, err=True)


def fail(error: Exception | str, *, code: int = FAILED) -> NoReturn:
    """Print an error message in red on stderr, and exit."""
    typer.secho(strip_control(error), fg=typer.colors.RED, err=True)
    sys.exit(code)


def strip_control(value: object) -> str:
    """Return a value as text with control characters escaped: text of a sender may contain an escape sequence."""
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in str(value))


@contextmanager
def atomic_write(file: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `file` at the end, so that `file` is never incomplete."""
    part = file.with_name(f"{file.name}.part")
    try:
        yield part
        part.replace(file)
    except OSError as error:
        fail(f"{file}: {error.strerror}. Choose another path.")
    finally:
        part.unlink(missing_ok=True)

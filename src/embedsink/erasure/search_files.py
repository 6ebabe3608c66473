"""A program that searches all files of a data folder for texts:

    python -m embedsink.erasure.search_files FOLDER

The server runs this as a child process, because closing any descriptor of `store.duckdb` inside the server would drop
DuckDB's POSIX lock. The standard input is a JSON list of texts. The output is JSON, with an item for each file: see
`SearchedFile`.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from embedsink.concurrency.priority import lower_priority

_CHUNK_BYTES = 4 * 1_048_576
# A shorter text is searched with its quotation marks, because other texts contain it by chance.
_WHOLE_BYTES_MIN = 8
# The folder of the requests, which name the people until they are finished.
EXCLUDED = "erasures"
# The folder of lost blocks of a file system, which may be mounted anywhere. Only root can read it.
_LOST_AND_FOUND = "lost+found"


def patterns_of(text: str) -> list[bytes]:
    """Return the forms of a text in files: as it is, and within JSON, where some characters are escaped."""
    plain = text.encode(errors="surrogatepass")
    if len(plain) < _WHOLE_BYTES_MIN:
        return quoted_patterns_of(text)
    [quoted, _] = quoted_patterns_of(text)
    return list(dict.fromkeys([plain, quoted[1:-1]]))


def quoted_patterns_of(text: str) -> list[bytes]:
    """Return the forms of a text in JSON with its quotation marks, and in JSON within a text of JSON."""
    quoted = json.dumps(text, ensure_ascii=False).encode(errors="replace")
    return [quoted, json.dumps(quoted.decode(), ensure_ascii=False)[1:-1].encode()]


def is_in_path(text: str, path: str) -> bool:
    """Return whether the path of a file contains a text. A short one may be there by chance."""
    return text in path and len(text.encode(errors="surrogatepass")) >= _WHOLE_BYTES_MIN


class SearchedFile(NamedTuple):
    """A file that was searched.

    Args:
        path: its path in the folder.
        byte_count: its size.
        found: the numbers of the texts that it, or its path, contains. In a path, short texts don't count.
        quoted: the numbers of those that it contains as whole texts in JSON.
    """

    path: str
    byte_count: int
    found: list[int]
    quoted: list[int]


def search(folder: Path, texts: Sequence[str]) -> list[SearchedFile]:
    """Search all files in a folder for texts. Links are not followed, and files that vanish meanwhile are left out.

    Raises:
        OSError: a file or a folder can't be read.
    """
    patterns = [(patterns_of(text), quoted_patterns_of(text)) for text in texts]
    searched = []
    for path in _files(folder):
        with suppress(FileNotFoundError):
            byte_count, found, quoted = _search_file(path, patterns)
            name = str(path.relative_to(folder))
            found |= {number for number, text in enumerate(texts) if is_in_path(text, name)}
            searched.append(SearchedFile(name, byte_count, sorted(found), sorted(quoted)))
    return searched


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files in a folder and below, in the order of their paths."""
    for parent, folder_names, file_names in os.walk(folder, onerror=_raise):
        excluded = {EXCLUDED} if Path(parent) == folder else set()
        folder_names[:] = sorted({*folder_names} - excluded - {_LOST_AND_FOUND})
        for name in sorted(file_names):
            path = Path(parent, name)
            try:
                is_regular = S_ISREG(path.lstat().st_mode)
            except FileNotFoundError:
                continue
            if is_regular:
                yield path


def _raise(error: OSError) -> None:
    """Raise the error of a folder that can't be read, unless the folder has vanished."""
    if not isinstance(error, FileNotFoundError):
        raise error


def _search_file(
    path: Path, patterns: Sequence[tuple[Sequence[bytes], Sequence[bytes]]]
) -> tuple[int, set[int], set[int]]:
    """Return the size of a file, and the numbers of the texts in it: anywhere, and as whole texts in JSON."""
    overlap = max((len(form) for forms in patterns for group in forms for form in group), default=1) - 1
    found: set[int] = set()
    quoted: set[int] = set()
    size = 0
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            content = rest + chunk
            for number, (plain_forms, quoted_forms) in enumerate(patterns):
                if number not in quoted and any(form in content for form in plain_forms):
                    found.add(number)
                    if any(form in content for form in quoted_forms):
                        quoted.add(number)
            rest = content[-overlap:] if overlap else b""
    return size, found, quoted


def main() -> None:
    """Search the folder in the arguments for the texts in the standard input."""
    lower_priority()
    json.dump(search(Path(sys.argv[1]), json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()

"""A program that searches all files of a data folder for texts:

    python -m embedsink.erasure.search_files FOLDER

The server runs this as a child process, because closing any descriptor of `store.duckdb` inside the server would drop
DuckDB's POSIX lock. The standard input is JSON: lists of patterns, in hexadecimal digits. A text has several patterns,
its forms in files. The output is JSON: for each file the path, the size, and the numbers of the lists of which it
contains a pattern.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISREG

from embedsink.concurrency.priority import lower_priority

_CHUNK_BYTES = 4 * 1_048_576
# A shorter text is searched with its quotation marks, because other texts contain it by chance.
_WHOLE_BYTES_MIN = 8
# The folder of the requests, which name the people until they are finished.
EXCLUDED = "erasures"


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


def search(folder: Path, texts: Sequence[Sequence[bytes]]) -> list[tuple[str, int, list[int]]]:
    """Return the path, the size in bytes, and the texts of each file. Files that vanish meanwhile are left out.

    Args:
        folder: the folder. Links are not followed.
        texts: lists of patterns.
    """
    found = []
    for path in _files(folder):
        try:
            size, numbers = _search_file(path, texts)
        except FileNotFoundError:
            continue
        found.append((str(path.relative_to(folder)), size, sorted(numbers)))
    return found


def _files(folder: Path) -> Iterator[Path]:
    """Yield the regular files in a folder and below, in the order of their paths."""
    for parent, folder_names, file_names in os.walk(folder):
        if Path(parent) == folder:
            folder_names[:] = [name for name in folder_names if name != EXCLUDED]
        folder_names.sort()
        for name in sorted(file_names):
            path = Path(parent, name)
            try:
                is_regular = S_ISREG(path.lstat().st_mode)
            except FileNotFoundError:
                continue
            if is_regular:
                yield path


def _search_file(path: Path, texts: Sequence[Sequence[bytes]]) -> tuple[int, set[int]]:
    """Return the size of a file, and the numbers of the texts in it."""
    overlap = max((len(pattern) for patterns in texts for pattern in patterns), default=1) - 1
    numbers: set[int] = set()
    size = 0
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            size += len(chunk)
            content = rest + chunk
            for number, patterns in enumerate(texts):
                if number not in numbers and any(pattern in content for pattern in patterns):
                    numbers.add(number)
            rest = content[-overlap:] if overlap else b""
    return size, numbers


def main() -> None:
    """Search the folder in the arguments for the texts in the standard input."""
    lower_priority()
    texts = [[bytes.fromhex(pattern) for pattern in patterns] for patterns in json.load(sys.stdin)]
    json.dump(search(Path(sys.argv[1]), texts), sys.stdout)


if __name__ == "__main__":
    main()

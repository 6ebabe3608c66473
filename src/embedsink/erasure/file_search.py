"""The search of all files of a data folder for texts of erased people."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

import orjson

from embedsink.concurrency.daemon_thread import run_in_daemon_thread
from embedsink.data_folder import DataFolder
from embedsink.erasure import search_files
from embedsink.erasure.search_files import SearchedFile
from embedsink.key_scope import EVERYTHING
from embedsink.store.database import Store


class FileSearch:
    """The search of a data folder.

    Args:
        folder: the data folder.
        store: its store.
    """

    def __init__(self, folder: DataFolder, store: Store) -> None:
        self._folder = folder
        self._store = store

    async def run(self, texts: Sequence[str]) -> list[tuple[SearchedFile, set[str]]]:
        """Return all files, each with the texts that it, or its path, contains.

        Of a text that other people's rows contain too, only occurrences as a whole text in JSON count. Databases have
        no quotation marks, but the rows in them are known.

        Raises:
            OSError: the search has failed.
            Unavailable: the store can't be read now.
        """
        files = await self._search(texts)
        found = sorted({texts[number] for file in files for number in file.found})
        shared = await run_in_daemon_thread(partial(self._read_shared, found), name="erasures") if found else set()
        searched = []
        for file in files:
            whole = set() if ".duckdb" in file.path else {texts[number] for number in file.quoted}
            searched.append((file, ({texts[number] for number in file.found} - shared) | whole))
        return searched

    def _read_shared(self, texts: list[str]) -> set[str]:
        """Return the texts that stored rows contain."""
        with self._store.reader({**EVERYTHING.variables(), "texts": texts}) as reader:
            return {row["text"] for row in reader.dicts("shared_text")}

    async def _search(self, texts: Sequence[str]) -> list[SearchedFile]:
        """Search all files in a child process, which ends with this call. Raise OSError if it fails."""
        # -P: don't import modules from the working directory.
        command = [sys.executable, "-P", "-m", search_files.__name__, str(self._folder.path)]
        pipe = subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            output, errors = await child.communicate(json.dumps(texts).encode())
        finally:
            if child.returncode is None:
                child.kill()
        if child.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise OSError(f"searching {self._folder.path}: {lines[-1] if lines else 'its process was killed'}")
        return [SearchedFile(*file) for file in orjson.loads(output)]

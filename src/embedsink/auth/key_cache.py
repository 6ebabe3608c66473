"""The cache of `keys.json`. Each request looks up its key here. The cache is refreshed when the file changes."""

import threading
from collections.abc import Callable
from itertools import chain

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.tokens import digest_of
from embedsink.errors import Misconfigured


class KeyCache:
    """The keys of a `keys.json` in memory.

    Args:
        file: the file to read and watch.
        clock: returns the time in epoch seconds.

    Raises:
        Misconfigured: the file is damaged.
    """

    def __init__(self, file: KeyStore, clock: Callable[[], float]) -> None:
        self.problem: str | None = None
        self._file = file
        self._clock = clock
        self._refresh_lock = threading.Lock()
        self._read()

    def find(self, token: str) -> Key | None:
        """Return the key with this token if it is neither revoked nor expired; otherwise None."""
        key = self._keys.get(digest_of(token))
        return key if key is not None and key.is_live(self._clock()) else None

    def is_live(self, key: Key) -> bool:
        """Return whether a key that `find` returned is still in the file, and has neither changed nor ended."""
        current = self.current(key)
        return current is not None and current.grants_the_same(key)

    def current(self, key: Key) -> Key | None:
        """Return what the file says of a key now, under any id; None if it no longer has the key, or it has ended."""
        current = self._keys.get(key.digest)
        return current if current is not None and current.is_live(self._clock()) else None

    def by_id(self, key_id: str) -> Key | None:
        """Return the key with this id, even if it is revoked or expired; None if the file has no such key."""
        return next((key for key in self._keys.values() if key.key_id == key_id), None)

    def refresh(self) -> bool:
        """Read the file again if it has changed. Return whether the keys in memory were replaced.

        If the file can't be read or is damaged, the keys stay as they were. `problem` describes the error until the
        file is valid again. A missing file is valid and has no keys.

        Raises:
            Misconfigured: the file can't be read or is damaged. Further calls with the same error return False.
        """
        with self._refresh_lock:
            is_unchanged = self._file.stamp() == self._stamp
            # After an error, read the file at each call: chmod makes a file readable without changing the stamp.
            if is_unchanged and self.problem is None:
                return False
            try:
                self._read()  # also clears `problem`
            except Misconfigured as error:
                previous_problem = self.problem
                # "Until then" refers to the last sentence of the error, which says what to do.
                self.problem = f"{error} Until then, the server uses the previous keys."
                if self.problem != previous_problem:  # Report an error only once.
                    raise Misconfigured(self.problem) from None
                return False
            return True

    def origins(self) -> frozenset[str] | None:
        """Return the origins of all live ingest keys; None if any live ingest key allows all origins."""
        ingest_keys = [key for key in self._live_keys() if KeyKind.INGEST in key.kinds]
        origins = [key.origins for key in ingest_keys if key.origins is not None]
        return frozenset(chain.from_iterable(origins)) if len(origins) == len(ingest_keys) else None

    def deployments(self) -> list[int]:
        """Return the deployments in the scopes of live keys, sorted. A deployment is repeated for each of its keys."""
        scopes = [key.scope.deployments for key in self._live_keys() if key.scope.deployments is not None]
        return sorted(chain.from_iterable(scopes))

    def _live_keys(self) -> list[Key]:
        now = self._clock()
        return [key for key in self._keys.values() if key.is_live(now)]

    def _read(self) -> None:
        """Read the file, and replace the keys in memory."""
        # Take the stamp before reading: if the file changes in between, the next refresh reads it again.
        stamp = self._file.stamp()
        keys = self._file.keys()
        self._keys = {key.digest: key for key in keys}
        self._stamp = stamp
        self.problem = None

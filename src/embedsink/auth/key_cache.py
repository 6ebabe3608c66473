"""The keys in memory. The server looks one up at each request and reads the file again when it changes."""

from collections.abc import Callable
from pathlib import Path

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

    def __init__(self, file: KeyStore | Path, clock: Callable[[], float]) -> None:
        self.problem: str | None = None
        self._file = file if isinstance(file, KeyStore) else KeyStore(file)
        self._clock = clock
        self._read()

    def find(self, token: str) -> Key | None:
        """Return the live key with this token; None for any other text."""
        key = self._keys.get(digest_of(token))
        return key if key is not None and key.is_live(self._clock()) else None

    def is_live(self, key: Key) -> bool:
        """Return whether a key is still live: it may have expired or been revoked since `find` returned it."""
        current = self._keys.get(key.digest)
        return current is not None and current.is_live(self._clock())

    def by_id(self, key_id: str) -> Key | None:
        """Return the key with this id, live or not; None if the file has no such key."""
        return next((key for key in self._keys.values() if key.key_id == key_id), None)

    def refresh(self) -> bool:
        """Read the file again if it has changed, and return whether it had. Call it twice a second: it costs a `stat`.

        If the file can't be read or is damaged, the keys stay as they were, and `problem` describes the error until
        the file is valid again. A missing file is valid and has no keys.

        Raises:
            Misconfigured: `problem`, when it is new. The same problem is raised once.
        """
        # While there is a problem, read at each call: chmod makes a file readable without changing its stamp.
        if self._file.stamp() == self._stamp and self.problem is None:
            return False
        try:
            self._read()
        except Misconfigured as error:
            known, self.problem = self.problem, f"{error} Until then the keys stay as they were."
            if self.problem != known:
                raise Misconfigured(self.problem) from None
            return False
        return True

    def origins(self) -> frozenset[str] | None:
        """Return the origins of all live ingest keys; None if one of these keys allows any origin."""
        live = [key for key in self._live() if key.kind is KeyKind.INGEST]
        if any(not key.origins for key in live):
            return None
        return frozenset(origin for key in live for origin in key.origins)

    def deployments(self) -> list[int]:
        """Return the deployments that live keys are limited to, once for each such key."""
        return sorted(deployment for key in self._live() for deployment in key.deployments or ())

    def _live(self) -> list[Key]:
        now = self._clock()
        return [key for key in self._keys.values() if key.is_live(now)]

    def _read(self) -> None:
        # Take the stamp before reading: if the file changes in between, the next refresh sees a newer stamp.
        stamp = self._file.stamp()
        keys = self._file.keys()
        self._keys = {key.digest: key for key in keys}
        self._stamp, self.problem = stamp, None

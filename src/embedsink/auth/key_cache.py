"""The keys in memory, looked up at every request and read again when their file changes."""

import hmac
from collections.abc import Callable
from pathlib import Path

from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import Key, KeyKind
from embedsink.auth.tokens import digest_of
from embedsink.errors import Misconfigured


class KeyCache:
    """The keys in memory, for a server that looks one up at every request.

    Args:
        file: what to read and to watch.
        clock: the time in epoch seconds.

    Raises:
        Misconfigured: the file is damaged, and there are no earlier keys to go on with.
    """

    def __init__(self, file: KeyStore | Path, clock: Callable[[], float]) -> None:
        self.problem: str | None = None
        self._file = file if isinstance(file, KeyStore) else KeyStore(file)
        self._clock = clock
        self._read()

    def find(self, token: str) -> Key | None:
        """The live key with this token; None for any other text, whatever is wrong with it."""
        # No look at the form: a text that was never made as a token has no digest here.
        key = self._found.get(token)
        if key is None:
            digest = digest_of(token)
            key = self._keys.get(digest)
            if key is None or not hmac.compare_digest(key.digest, digest):
                return None
            self._found[token] = key
        return key if key.is_live(self._clock()) else None

    def is_live(self, key: Key) -> bool:
        """Whether a key that was found before still holds: it may have been revoked meanwhile, or have expired."""
        now = self._keys.get(key.digest)
        return now is not None and now.is_live(self._clock())

    def by_id(self, key_id: str) -> Key | None:
        """The key of this id, live or not; None when there never was one, or it was taken out of the file."""
        return next((key for key in self._keys.values() if key.key_id == key_id), None)

    def refresh(self) -> bool:
        """Read the file again if it has changed; whether it had. Costs a `stat`: call it twice a second.

        A file that can't be read, or is damaged, leaves the keys as they were; `problem` says why, until it
        is good again. A deleted file is a good one, without keys.

        Raises:
            Misconfigured: `problem`, when it is new: the same one is not raised twice.
        """
        # While there is a problem, look inside each time: chmod mends a file without giving it a new version.
        if self._file.version() == self._version and self.problem is None:
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
        """From where pages may send: the origins of all live ingest keys, or None when one allows any."""
        now = self._clock()
        live = [key for key in self._keys.values() if key.kind is KeyKind.INGEST and key.is_live(now)]
        if any(not key.origins for key in live):
            return None
        return frozenset(origin for key in live for origin in key.origins)

    def deployments(self) -> list[int]:
        """The deployments that live keys are scoped to, each as often as there are keys for it."""
        now = self._clock()
        live = [key.deployments for key in self._keys.values() if key.deployments is not None and key.is_live(now)]
        return sorted(deployment for deployments in live for deployment in deployments)

    def _read(self) -> None:
        # The version before the keys: when the file changes in between, the next look sees a newer version.
        version = self._file.version()
        keys = self._file.keys()
        self._keys = {key.digest: key for key in keys}
        # By token, what was found since: hashing one at each request costs 2 µs. Never more than there are keys.
        self._found: dict[str, Key] = {}
        self._version, self.problem = version, None

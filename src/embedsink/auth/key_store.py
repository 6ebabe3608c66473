"""The file `keys.json`. One process changes it at a time, and each change replaces the whole file atomically."""

import fcntl
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from embedsink.auth.keys import Key, KeyKind, format_time
from embedsink.auth.tokens import digest_of, new_token
from embedsink.durable_files import replace_durably
from embedsink.errors import Misconfigured, preview, suggestion
from embedsink.key_scope import KeyScope

# Ended keys are revoked or expired. An audit of what they wrote needs them, so they are retained within these limits.
ENDED_DAYS_MAX = 400
ENDED_KEYS_MAX = 10_000
SECONDS_PER_DAY = 86_400

FileStamp = tuple[int, int, int]
"""The mtime in ns, the size and the inode of a file."""


class KeyStore:
    """The file `keys.json`, with valid, revoked and expired keys. It contains digests of tokens, and no tokens.

    Args:
        path: the path of the file.
        on_change: called before each change with the keys in the file and the keys to write. If it raises, nothing is
            written.
    """

    def __init__(self, path: Path, *, on_change: Callable[[list[Key], list[Key]], None] | None = None) -> None:
        self.path = path
        self._on_change = on_change

    def create(
        self,
        kind: KeyKind,
        *,
        deployments: Iterable[int] | None = None,
        tenants: Iterable[str] | None = None,
        shows_names: bool = False,
        origins: Iterable[str] = (),
        expires_at: float | None = None,
        label: str = "",
        now: float,
    ) -> tuple[Key, str]:
        """Create and store a key. Return the key and the token. The token is not stored anywhere.

        `expires_at` and `now` are epoch seconds. Without `expires_at`, the key never expires.

        Raises:
            Misconfigured: an argument is invalid, or the file can't be read or written.
        """
        if expires_at is not None and expires_at <= now:
            raise Misconfigured(f"expires_at: {format_time(expires_at)} is in the past. Choose a later time.")
        token = new_token(kind)
        key = Key(
            key_id=f"k_{secrets.token_hex(6)}",
            kinds=frozenset({kind}),
            label=label,
            scope=KeyScope(
                deployments=None if deployments is None else frozenset(deployments),
                tenants=None if tenants is None else frozenset(tenants),
                shows_names=shows_names,
            ),
            origins=frozenset(origins) or None,
            created_at=now,
            expires_at=expires_at,
            revoked_at=None,
            digest=digest_of(token),
        )
        key = _validated(key)
        with self._open_for_change(now) as keys:
            keys.append(key)
        return key, token

    def keys(self) -> list[Key]:
        """Return all keys in the order of their creation; none if the file does not exist.

        Raises:
            Misconfigured: the file can't be read, or its content is invalid.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Misconfigured(f"{self.path}: {error.strerror}. Make it readable for this user.") from None
        from embedsink.auth.key_schema import parse_file  # Loads pydantic.

        try:
            return parse_file(content)
        except Misconfigured as error:
            raise Misconfigured(f"{self.path.name}: {error} Correct or restore the file.") from None

    def revoke(self, key_id: str, *, now: float) -> Key:
        """Revoke a key. Running servers refuse the key within a second. A second revocation changes nothing.

        Args:
            key_id: the id of the key; or the token, for a leaked key whose id is not known.
            now: the time of revocation, in epoch seconds.

        Raises:
            Misconfigured: there is no such key, or the file can't be read or written.
        """
        digest = digest_of(key_id)  # used if the argument is a token
        with self._open_for_change(now) as keys:
            for index, key in enumerate(keys):
                if key_id == key.key_id or digest == key.digest:
                    keys[index] = _with_revocation(key, now)
                    return keys[index]
            advice = suggestion(key_id, [key.key_id for key in keys], "`embedsink keys list` shows all keys.")
            raise Misconfigured(f"key {preview(key_id)} does not exist. {advice}")

    def stamp(self) -> FileStamp | None:
        """Return the stamp of the file, which changes with the content; None if the file can't be examined."""
        try:
            status = self.path.stat()
        except OSError:
            return None  # If the file exists, `keys` reports the error.
        return status.st_mtime_ns, status.st_size, status.st_ino

    @contextmanager
    def _open_for_change(self, now: float) -> Iterator[list[Key]]:
        """Exclude other processes, and yield the list of all keys. After the block, write the keys to retain.

        If the block raises, nothing is written.
        """
        with self.locked() as keys:
            before = list(keys)
            yield keys
            retained = _retained_keys(keys, now)
            if self._on_change is not None:
                self._on_change(before, retained)
            self._write(retained)

    @contextmanager
    def locked(self) -> Iterator[list[Key]]:
        """Exclude changes by other processes during this block, and yield the list of all keys.

        Raises:
            Misconfigured: the file can't be read or locked, or the block raises an OSError.
        """
        try:
            # Lock a separate file, because `_write` replaces the file with the keys.
            with _open_private(self.path.with_name(f"{self.path.name}.lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # Closing the file releases the lock.
                yield self.keys()
        except OSError as error:
            raise Misconfigured(f"{self.path}: {error.strerror}. Fix the cause, then run the command again.") from error

    def _write(self, keys: list[Key]) -> None:
        """Replace the file atomically: after a crash or a power loss, the path refers to the old or to the new file."""
        from embedsink.auth.key_schema import to_document  # Loads pydantic.

        document = json.dumps(to_document(keys), indent=2, ensure_ascii=False)
        replace_durably(self.path, f"{document}\n".encode(), mode=0o600)


def _validated(key: Key) -> Key:
    """Return the key as it will be read from the file: validated, and with times rounded to milliseconds."""
    from embedsink.auth.key_schema import parse_entry, to_entry  # Loads pydantic.

    return parse_entry(to_entry(key))


def _with_revocation(key: Key, now: float) -> Key:
    """Return the key with this time of revocation, unless it was revoked before."""
    if key.revoked_at is not None:
        return key  # The first revocation counts.
    return _validated(replace(key, revoked_at=now))


def _retained_keys(keys: list[Key], now: float) -> list[Key]:
    """Return all live keys, and up to `ENDED_KEYS_MAX` keys that ended most recently, within `ENDED_DAYS_MAX` days."""
    since = now - ENDED_DAYS_MAX * SECONDS_PER_DAY
    recently_ended = sorted(
        (ended_at, key.key_id) for key in keys if (ended_at := key.ended_at(now)) is not None and ended_at > since
    )
    retained_ids = {key_id for _, key_id in recently_ended[-ENDED_KEYS_MAX:]}
    return [key for key in keys if key.is_live(now) or key.key_id in retained_ids]


def _open_private(path: Path) -> TextIO:
    """Open a file for writing; create it if it is missing. Under any umask, only the owner can read and write it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)  # The umask may have removed permissions of the owner.
    if os.geteuid() == 0:
        # After `sudo embedsink keys revoke` the server must be able to read the file, or it would still accept the key.
        owner = path.parent.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return os.fdopen(descriptor, "w", encoding="utf-8")

"""The file `keys.json`, changed by one program at a time and never half written."""

import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from embedsink.auth.key import Key, KeyKind
from embedsink.auth.key_schema import document_of, entry_of, iso, key_of, keys_of
from embedsink.auth.token import digest_of, new_token
from embedsink.durable_files import sync_folder
from embedsink.errors import Misconfigured, preview, suggestion

# Revoked and expired keys stay so long, for an audit of what they wrote, and at most so many of them.
ENDED_DAYS_MAX = 400
ENDED_KEYS_MAX = 10_000

Version = tuple[int, int, int]


class KeyStore:
    """The file `keys.json`: live keys, and ended ones for an audit. Nothing in it is usable."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(
        self,
        kind: KeyKind,
        *,
        deployments: Iterable[int] | None = None,
        origins: Iterable[str] = (),
        expires_at: float | None = None,
        label: str = "",
        now: float,
    ) -> tuple[Key, str]:
        """Make a key and its token, which exists nowhere but in this answer.

        Raises:
            Misconfigured: an argument that no key can have, or a file that can't be read or written.
        """
        if expires_at is not None and expires_at <= now:
            raise Misconfigured(f"expires_at: {iso(expires_at)} is past. Choose a later time.")
        token = new_token(kind)
        wanted = Key(
            key_id=f"k_{secrets.token_hex(6)}",
            kind=kind,
            label=label,
            deployments=None if deployments is None else frozenset(deployments),
            origins=frozenset(origins),
            created_at=now,
            expires_at=expires_at,
            revoked_at=None,
            digest=digest_of(token),
        )
        key = key_of(entry_of(wanted))  # through the same gate as an entry that was written by hand
        with self._changing(now) as keys:
            keys.append(key)
        return key, token

    def keys(self) -> list[Key]:
        """All keys, in the order of their making; none when there is no file.

        Raises:
            Misconfigured: the file can't be read, or is not as `create` writes it.
        """
        try:
            return keys_of(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise Misconfigured(f"{self.path}: {error.strerror}. Make it readable for this user.") from None
        except Misconfigured as error:
            raise Misconfigured(f"{self.path.name}: {error} Correct or restore the file.") from None

    def revoke(self, key_id: str, *, now: float) -> Key:
        """End a key. Servers that watch the file refuse it within a second. Doing it again changes nothing.

        Args:
            key_id: the id, or the token itself: it is all that one has of a key that was found in public.

        Raises:
            Misconfigured: there is no such key, or the file can't be read or written.
        """
        digest = digest_of(key_id)
        with self._changing(now) as keys:
            for place, key in enumerate(keys):
                if key_id == key.key_id or digest == key.digest:
                    keys[place] = _revoked(key, now)
                    return keys[place]
            meant = suggestion(key_id, [key.key_id for key in keys], "`embedsink keys list` shows those that do.")
            raise Misconfigured(f"key {preview(key_id)} does not exist. {meant}")

    def version(self) -> Version | None:
        """Its mtime in ns, size and inode, which change whenever it does; None when there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None  # Whether it is missing or out of reach, keys() finds out.
        return status.st_mtime_ns, status.st_size, status.st_ino

    @contextmanager
    def _changing(self, now: float) -> Iterator[list[Key]]:
        """The keys, for one process at a time. What the block makes of them is written, unless it raises."""
        try:
            with _open_private(self.path.with_name(f"{self.path.name}.lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
                keys = self.keys()
                yield keys
                self._write(_without_old(keys, now))
        except OSError as error:
            raise Misconfigured(f"{self.path}: {error.strerror}. Repair that, then run this again.") from error

    def _write(self, keys: list[Key]) -> None:
        # Who reads meanwhile, or after kill -9 or power loss, finds the old file or the new, never a part.
        draft = self.path.with_name(f"{self.path.name}.new")
        draft.unlink(missing_ok=True)
        with _open_private(draft) as file:
            json.dump(document_of(keys), file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        sync_folder(self.path.parent)


def _without_old(keys: list[Key], now: float) -> list[Key]:
    """Leave out keys that ended long ago, and the oldest ones of very many."""
    ended = [(ended_at, key.key_id) for key in keys if (ended_at := key.ended_at(now)) is not None]
    kept = [key_id for ended_at, key_id in sorted(ended) if ended_at > now - ENDED_DAYS_MAX * 86_400][-ENDED_KEYS_MAX:]
    old = {key_id for _, key_id in ended} - set(kept)
    return [key for key in keys if key.key_id not in old]


def _revoked(key: Key, now: float) -> Key:
    return key if key.revoked_at is not None else key_of(entry_of(replace(key, revoked_at=now)))


def _open_private(path: Path) -> TextIO:
    """Open for writing a file that only its owner can read; it is made if missing."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        # The server must be able to read what `sudo embedsink keys revoke` wrote, or the key would live on.
        owner = path.parent.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return os.fdopen(descriptor, "w", encoding="utf-8")

"""Hashes of personal data: HMAC-SHA256 (RFC 2104) with a secret in the data folder."""

import fcntl
import hmac
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_bytes

from embedsink.durable_files import replace_durably
from embedsink.errors import Misconfigured
from embedsink.permissions import give_to_owner

_SECRET_BYTES = 32
_MODE = 0o600
_HASH_PREFIX = "h_"
_HASH_DIGITS = 32  # 128 bits
_HASH = re.compile(rf"{_HASH_PREFIX}[0-9a-f]{{{_HASH_DIGITS}}}")


def hash_text(field: str, text: str, secret: bytes) -> str:
    """Return the hash of a field's value: `h_` and 32 hexadecimal digits.

    A text in this form is returned unchanged: it was hashed before it was exported, quarantined or sent.
    """
    if _HASH.fullmatch(text):
        return text
    # The name of the field is part of the input, so that a viewer and a tenant with the same id have different hashes.
    message = f"{field}\0{text}".encode(errors="surrogatepass")
    return _HASH_PREFIX + hmac.digest(secret, message, "sha256").hex()[:_HASH_DIGITS]


class SecretFile:
    """The file `privacy_secrets.json`: the secrets, the newest first. The newest one hashes.

    The former ones remain, so that a person is found by the hashes of earlier events.

    Args:
        path: the file.
        is_expected: whether a missing file is an error, because earlier events are hashed.
    """

    def __init__(self, path: Path, *, is_expected: bool = False) -> None:
        self._path = path
        self._is_expected = is_expected

    def read(self) -> list[bytes]:
        """Return the secrets, the newest first; an empty list without the file, unless it is expected.

        Raises:
            Misconfigured: the file can't be read, is damaged, or is expected but missing.
        """
        try:
            content = json.loads(self._path.read_bytes())
            secrets = [_parse_secret(text) for text in content["secrets"]]
            if not secrets:
                raise ValueError("no secret")
            return secrets
        except FileNotFoundError:
            if self._is_expected:
                raise self._lost("is missing, but earlier events are hashed") from None
            return []
        except OSError as error:
            raise Misconfigured(f"{self._path}: {error.strerror}. Make it readable for this user.") from None
        except (ValueError, TypeError, KeyError, RecursionError):
            raise self._lost("is damaged") from None

    def read_or_create(self) -> list[bytes]:
        """Return the secrets, the newest first. Create the file with a new secret if it is missing.

        Raises:
            Misconfigured: as with `read`.
            OSError: it can't be written.
        """
        with self._locked():
            return self.read() or self._add(former=[])

    def rotate(self, *, keeps_former: bool = True) -> list[bytes]:
        """Add a new secret durably, and return all secrets, the newest first.

        Args:
            keeps_former: whether the former secrets remain. Without them, no program can compute the hashes of earlier
                events.

        Raises the exceptions of `read_or_create`.
        """
        with self._locked():
            return self._add(former=self.read() if keeps_former else [])

    def _lost(self, problem: str) -> Misconfigured:
        return Misconfigured(
            f"{self._path}: {problem}. Put a copy back, such as that of a backup. Without a copy, run `embedsink "
            "privacy rotate-secret --forget-former`: access requests and erasures then miss earlier hashed events."
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude changes by other processes during this block."""
        lock_path = self._path.with_name(f"{self._path.name}.lock")
        descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            give_to_owner(descriptor, self._path.parent)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)  # This releases the lock.

    def _add(self, *, former: list[bytes]) -> list[bytes]:
        """Write a new secret before the former ones, and return all."""
        values = [token_bytes(_SECRET_BYTES), *former]
        self._write(values)
        return values

    def _write(self, values: Sequence[bytes]) -> None:
        """Replace the file durably."""
        content = json.dumps({"secrets": [value.hex() for value in values]}).encode()
        replace_durably(self._path, content + b"\n", mode=_MODE)


def _parse_secret(text: str) -> bytes:
    """Return a secret. Raise ValueError if it is too short, or not hexadecimal."""
    value = bytes.fromhex(text)
    if len(value) < _SECRET_BYTES:
        raise ValueError("too short")
    return value

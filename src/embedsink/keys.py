"""Who may write and who may read: keys, of which only a SHA-256 is kept (spec 5).

    create ─▶ token, shown once ─▶ its holder ─▶ Authorization: Bearer es_ingest_…
       └────▶ keys.json: digest, scope, expiry ─▶ KeyRing, re-read when the file changes ─▶ find(token)

A token is `es_<kind>_<random><checksum>`: 256 random bits in 43 base62 digits, then in 6 the CRC-32 of all
before them (RFC 1952, section 8). So a slip of the keyboard shows offline, and secret scanners can be sure.
"""

import fcntl
import hmac
import json
import os
import re
import secrets
import string
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

from embedsink.errors import Misconfigured, quote
from embedsink.segment import sync_folder

# As the wire has it (SafeInteger in envelope/catalog.py), in either direction: importing that would load pydantic.
DEPLOYMENT_MAX = 2**53 - 1
DURATION_DAYS_MAX = 36_500
LABEL_CHARACTERS_MAX = 100

Version = tuple[int, int, int]

_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_TOKEN = re.compile(r"(es_(?:ingest|read|admin)_[0-9A-Za-z]{43})([0-9A-Za-z]{6})")
_ORIGIN = re.compile(
    r"(https?)://([0-9a-z](?:[0-9a-z_.-]*[0-9a-z])?|\[[0-9a-f:]+\])(?::([0-9]{1,5}))?/?",
    re.ASCII | re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_DEPLOYMENT = re.compile(r"-?[0-9]{1,16}")
_DURATION = re.compile(r"([0-9]{1,12})([smhdw])")
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class KeyKind(StrEnum):
    """Who holds a key: a page that sends events, a person who reads reports, whoever runs the server."""

    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key. Times are epoch seconds, in whole milliseconds.

    Args:
        key_id: its name in lists and logs; it opens nothing.
        deployments: the only ones that it is good for; None for all (spec 5.3).
        origins: the only pages that may use it; empty for any, and for programs that are no page.
        digest: the SHA-256 of its token, in hex.
    """

    key_id: str
    kind: KeyKind
    label: str
    deployments: frozenset[int] | None
    origins: frozenset[str]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    digest: str = field(repr=False)

    def is_live(self, now: float) -> bool:
        """Whether the key is neither revoked nor expired."""
        # Revoked is revoked, whenever that was: a clock that is set back must not revive the key.
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def allows_origin(self, origin: str) -> bool:
        """Whether a page of this origin may use the key."""
        return not self.origins or origin in self.origins


class KeyFile:
    """The file `keys.json`: every key that was ever made, the revoked ones too. Nothing in it is usable."""

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
            raise Misconfigured(f"expires_at: {_iso(expires_at)} is past. Choose a later time.")
        token = _new_token(kind)
        wanted = Key(
            key_id=f"k_{secrets.token_hex(6)}",
            kind=kind,
            label=label,
            deployments=None if deployments is None else frozenset(deployments),
            origins=frozenset(origins),
            created_at=now,
            expires_at=expires_at,
            revoked_at=None,
            digest=_digest(token),
        )
        key = _key(_entry(wanted))  # through the same gate as an entry that was written by hand
        with self._changing() as keys:
            keys.append(key)
        return key, token

    def keys(self) -> list[Key]:
        """All keys, in the order of their making; none when there is no file.

        Raises:
            Misconfigured: the file can't be read, or is not as `create` writes it.
        """
        try:
            return _keys(self.path.read_bytes())
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
        digest = _digest(key_id)
        with self._changing() as keys:
            for place, key in enumerate(keys):
                if key_id == key.key_id or digest == key.digest:
                    keys[place] = _revoked(key, now)
                    return keys[place]
            raise Misconfigured(f"key {quote(key_id)} does not exist. {_what_instead(key_id, keys)}")

    def version(self) -> Version | None:
        """Its mtime in ns, size and inode, which change whenever it does; None when there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None  # Whether it is missing or out of reach, keys() finds out.
        return status.st_mtime_ns, status.st_size, status.st_ino

    @contextmanager
    def _changing(self) -> Iterator[list[Key]]:
        """The keys, for one process at a time. What the block makes of them is written, unless it raises."""
        try:
            with _open_private(self.path.with_name(f"{self.path.name}.lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
                keys = self.keys()
                yield keys
                self._write(keys)
        except OSError as error:
            raise Misconfigured(f"{self.path}: {error.strerror}. See to it, then repeat this.") from error

    def _write(self, keys: list[Key]) -> None:
        # Who reads meanwhile, or after kill -9 or power loss, finds the old file or the new, never a part.
        draft = self.path.with_name(f"{self.path.name}.new")
        draft.unlink(missing_ok=True)
        with _open_private(draft) as file:
            json.dump({"keys": [_entry(key) for key in keys]}, file, indent=2, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        sync_folder(self.path.parent)


class KeyRing:
    """The keys in memory, for a server that looks one up at every request.

    Args:
        file: what to read and to watch.
        clock: the time in epoch seconds.

    Raises:
        Misconfigured: the file is damaged, and there are no earlier keys to go on with.
    """

    def __init__(self, file: KeyFile | Path, clock: Callable[[], float]) -> None:
        self.problem: str | None = None
        self._file = file if isinstance(file, KeyFile) else KeyFile(file)
        self._clock = clock
        self._read()

    def find(self, token: str) -> Key | None:
        """The live key with this token; None for any other text, whatever is wrong with it."""
        # No look at the form: a text that was never made as a token has no digest here.
        key = self._found.get(token)
        if key is None:
            digest = _digest(token)
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


def looks_like_key(token: str) -> bool:
    """Whether a text has the form and the checksum of a token, be there such a key or not."""
    match = _TOKEN.fullmatch(token)
    return match is not None and match[2] == _checksum(match[1])


def parse_duration(text: str) -> int:
    """A span of time such as `90d`, in seconds.

    Raises:
        Misconfigured: it is not a number with a unit (s, m, h, d, w), or not between a second and 100 years.
    """
    match = _DURATION.fullmatch(text)
    seconds = int(match[1]) * _UNITS_S[match[2]] if match else 0
    if not 1 <= seconds <= DURATION_DAYS_MAX * _UNITS_S["d"]:
        raise Misconfigured(
            f"duration: {quote(text)} is not a number with s, m, h, d or w, from 1s to {DURATION_DAYS_MAX}d. "
            "Write it like 90d."
        )
    return seconds


def parse_deployment(text: str) -> int:
    """A deployment as it is typed: digits of ASCII, and no more than the wire allows.

    Raises:
        Misconfigured: it can be no deployment.
    """
    number = int(text) if _DEPLOYMENT.fullmatch(text) else None
    if number is None or not is_deployment(number):
        raise Misconfigured(
            f"deployment: {quote(text)} is not an integer from {-DEPLOYMENT_MAX:,} to {DEPLOYMENT_MAX:,}. "
            "Write it in plain digits."
        )
    return number


def is_deployment(number: object) -> bool:
    """Whether the wire takes this as a deployment: an integer that is safe in JSON (RFC 7493), so no boolean."""
    return type(number) is int and abs(number) <= DEPLOYMENT_MAX


def parse_label(text: str) -> str:
    """What a key is for: one printable line.

    Raises:
        Misconfigured: it is too long, or more than a line.
    """
    try:
        return _line(text)
    except ValueError:
        raise Misconfigured(f"label: {quote(text)} is not {_A_LINE}. Shorten it.") from None


def normal_origin(origin: str) -> str:
    """An origin as browsers put it into their `Origin` header (RFC 6454, section 6.2).

    Raises:
        Misconfigured: it is no origin of a web page.
    """
    match = _ORIGIN.fullmatch(origin)
    if match is None or not 0 < int(match[3] or 1) < 65_536:
        raise Misconfigured(
            f"origin: {quote(origin)} is not http(s)://host or http(s)://host:port. Write it like "
            "https://app.example.com: no path, no wildcard, no null; other scripts in their xn-- form."
        )
    scheme, host = match[1].lower(), match[2].lower()
    port = int(match[3] or _DEFAULT_PORTS[scheme])
    return f"{scheme}://{host}" if port == _DEFAULT_PORTS[scheme] else f"{scheme}://{host}:{port}"


def _new_token(kind: KeyKind) -> str:
    start = f"es_{kind.value}_{_base62(secrets.randbits(256), length=43)}"
    return start + _checksum(start)


def _checksum(start: str) -> str:
    return _base62(zlib.crc32(start.encode()), length=6)


def _base62(number: int, *, length: int) -> str:
    return "".join(_BASE62[number // 62**place % 62] for place in reversed(range(length)))


def _digest(token: str) -> str:
    # Whatever a sender calls a token has a digest, a lone surrogate too.
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _revoked(key: Key, now: float) -> Key:
    return key if key.revoked_at is not None else _key(_entry(replace(key, revoked_at=now)))


def _what_instead(key_id: str, keys: list[Key]) -> str:
    nearest = get_close_matches(key_id, [key.key_id for key in keys], n=1)
    return f'Did you mean "{nearest[0]}"?' if nearest else "`embedsink keys list` shows those that do."


def _open_private(path: Path) -> TextIO:
    """Open for writing a file that only its owner can read; it is made if missing."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        # The server must be able to read what `sudo embedsink keys revoke` wrote, or the key would live on.
        owner = path.parent.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return os.fdopen(descriptor, "w", encoding="utf-8")


def _entry(key: Key) -> dict[str, Any]:
    """A key as it stands in `keys.json`."""
    return {
        "key_id": key.key_id,
        "kind": key.kind.value,
        "label": key.label,
        "deployments": None if key.deployments is None else sorted(key.deployments),
        "origins": sorted(key.origins),
        "created_at": _iso(key.created_at),
        "expires_at": None if key.expires_at is None else _iso(key.expires_at),
        "revoked_at": None if key.revoked_at is None else _iso(key.revoked_at),
        "digest": key.digest,
    }


def _object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    # A `revoked_at` that was written above the old one must not lose against it.
    if len(dict(fields)) < len(fields):
        raise ValueError("a field stands twice in its object")
    return dict(fields)


def _keys(content: bytes) -> list[Key]:
    try:
        document = json.loads(content, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"is not JSON ({error}).") from None
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise Misconfigured('is not {"keys": […]}.')
    keys = [_key(entry, where=f"keys[{place}].") for place, entry in enumerate(document["keys"])]
    if len({key.key_id for key in keys}) < len(keys) or len({key.digest for key in keys}) < len(keys):
        raise Misconfigured("has the same key twice.")  # Which one counts? Only one of them may be revoked.
    return keys


def _key(entry: Any, *, where: str = "") -> Key:
    """A key from its entry, all checked: writing `expire_at` must not make a key that never expires."""
    if not isinstance(entry, dict) or entry.keys() != _FIELDS.keys():
        raise Misconfigured(f"{where.rstrip('.')}: does not have exactly the fields {', '.join(_FIELDS)}.")
    fields = {}
    for name, (read, allowed) in _FIELDS.items():
        try:
            fields[name] = read(entry[name])
        except Misconfigured as error:
            raise Misconfigured(f"{where}{error}") from None
        except (TypeError, ValueError, OverflowError):
            raise Misconfigured(f"{where}{name}: {quote(entry[name])} is not {allowed}.") from None
    return Key(**fields)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _instant(text: Any) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("no zone")
    return moment.astimezone(UTC).timestamp()


def _deployments(numbers: Any) -> frozenset[int]:
    # No empty list: one could take it for "all" as well as for "none".
    if not isinstance(numbers, list) or not numbers or not all(map(is_deployment, numbers)):
        raise ValueError("no ids")
    return frozenset(numbers)


def _origins(origins: Any) -> frozenset[str]:
    if not isinstance(origins, list):
        raise TypeError("no list")
    return frozenset(map(normal_origin, origins))


def _line(text: Any) -> str:
    if not isinstance(text, str) or len(text) > LABEL_CHARACTERS_MAX or not text.isprintable():
        raise ValueError("no line")
    return text


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


_A_LINE = f"one line of at most {LABEL_CHARACTERS_MAX} characters"
_AN_INSTANT = "an instant such as 2026-11-21T09:30:00Z"
_FIELDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "key_id": (_line, _A_LINE),
    "kind": (KeyKind, "one of ingest, read, admin"),
    "label": (_line, _A_LINE),
    "deployments": (
        _optional(_deployments),
        f"a list of deployments up to {DEPLOYMENT_MAX:,}, or null for all of them",
    ),
    "origins": (_origins, "a list of origins"),
    "created_at": (_instant, _AN_INSTANT),
    "expires_at": (_optional(_instant), f"{_AN_INSTANT}, or null"),
    "revoked_at": (_optional(_instant), f"{_AN_INSTANT}, or null"),
    "digest": (_line, _A_LINE),
}

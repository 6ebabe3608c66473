"""The token of a key: 256 random bits in base62, with a checksum that detects typing errors."""

import re
import secrets
import string
import zlib
from hashlib import sha256

from embedsink.auth.keys import KeyKind

_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
TOKEN_START = re.compile(rf"es_(?:{'|'.join(KeyKind)})_")
_TOKEN = re.compile(rf"({TOKEN_START.pattern}[0-9A-Za-z]{{43}})([0-9A-Za-z]{{6}})")


def looks_like_key(token: str) -> bool:
    """Return whether a text has the form and the checksum of a token. The key need not exist."""
    match = _TOKEN.fullmatch(token)
    return match is not None and match[2] == _checksum(match[1])


def new_token(kind: KeyKind) -> str:
    """Return a new random token."""
    start = f"es_{kind.value}_{_base62(secrets.randbits(256), length=43)}"
    return start + _checksum(start)


def digest_of(token: str) -> str:
    """Return the SHA-256 of a token, in hex. Only the digest is stored."""
    # A client may send a lone surrogate as its token. It has a digest too, which matches no key.
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(start: str) -> str:
    return _base62(zlib.crc32(start.encode()), length=6)


def _base62(number: int, *, length: int) -> str:
    return "".join(_BASE62[number // 62**exponent % 62] for exponent in reversed(range(length)))

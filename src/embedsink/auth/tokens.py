"""The token of a key: random digits that only its holder has, with a checksum that tells a slip of the keyboard."""

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
    """Whether a text has the form and the checksum of a token, be there such a key or not."""
    match = _TOKEN.fullmatch(token)
    return match is not None and match[2] == _checksum(match[1])


def new_token(kind: KeyKind) -> str:
    """A token that nobody else can guess or was ever given."""
    start = f"es_{kind.value}_{_base62(secrets.randbits(256), length=43)}"
    return start + _checksum(start)


def digest_of(token: str) -> str:
    """What is kept of a token: its SHA-256, in hex."""
    # Whatever a sender calls a token has a digest, a lone surrogate too.
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(start: str) -> str:
    return _base62(zlib.crc32(start.encode()), length=6)


def _base62(number: int, *, length: int) -> str:
    return "".join(_BASE62[number // 62**place % 62] for place in reversed(range(length)))

"""The token of an API key: 256 random bits in base62, with a checksum that detects typing errors."""

import re
import secrets
import string
import zlib
from hashlib import sha256

from embedsink.auth.keys import KeyKind

_BASE62_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
TOKEN_PREFIX = re.compile(rf"es_(?:{'|'.join(KeyKind)})_")
# Its header begins with `{"`: texts with this beginning are redacted in logs and files.
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_TOKEN = re.compile(rf"(?P<body>{TOKEN_PREFIX.pattern}[0-9A-Za-z]{{43}})(?P<checksum>[0-9A-Za-z]{{6}})")


def looks_like_key(token: str) -> bool:
    """Return whether a text has the form of a token and a correct checksum. The key itself may be unknown."""
    match = _TOKEN.fullmatch(token)
    return match is not None and match["checksum"] == _checksum(match["body"])


def looks_like_jwt(token: str) -> bool:
    """Return whether a text has the form of a signed JWT: three parts in base64url (RFC 7515, section 3.1)."""
    return _JWT.fullmatch(token) is not None


def new_token(kind: KeyKind) -> str:
    """Return a new random token: a prefix, 256 random bits in 43 digits, and a checksum of 32 bits in 6 digits."""
    body = f"es_{kind.value}_{_to_base62(secrets.randbits(256), length=43)}"
    return body + _checksum(body)


def digest_of(token: str) -> str:
    """Return the SHA-256 of a token, in hex. Only the digest is stored."""
    # A client may send a lone surrogate, which strict UTF-8 refuses. Its digest matches no key.
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(body: str) -> str:
    """Return the last 6 digits of a token, computed from the characters before them."""
    return _to_base62(zlib.crc32(body.encode()), length=6)


def _to_base62(number: int, *, length: int) -> str:
    """Return a number in base 62, padded with zeros to `length` digits."""
    return "".join(_BASE62_DIGITS[number // 62**exponent % 62] for exponent in reversed(range(length)))

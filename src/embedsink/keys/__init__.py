"""Who may write and who may read: keys, of which only a SHA-256 is kept (spec 5).

    create ─▶ token, shown once ─▶ its holder ─▶ Authorization: Bearer es_ingest_…
       └────▶ keys.json: digest, scope, expiry ─▶ KeyRing, re-read when the file changes ─▶ find(token)

A token is `es_<kind>_<random><checksum>`: 256 random bits in 43 base62 digits, then in 6 the CRC-32 of all
before them (RFC 1952, section 8). So a slip of the keyboard shows offline, and secret scanners can be sure.
"""

from embedsink.keys.file import KeyFile
from embedsink.keys.key import Key, KeyKind
from embedsink.keys.ring import KeyRing
from embedsink.keys.token import TOKEN_START, looks_like_key
from embedsink.keys.written import (
    DEPLOYMENT_MAX,
    is_deployment,
    normal_origin,
    parse_deployment,
    parse_duration,
    parse_label,
)

__all__ = [
    "DEPLOYMENT_MAX",
    "TOKEN_START",
    "Key",
    "KeyFile",
    "KeyKind",
    "KeyRing",
    "is_deployment",
    "looks_like_key",
    "normal_origin",
    "parse_deployment",
    "parse_duration",
    "parse_label",
]

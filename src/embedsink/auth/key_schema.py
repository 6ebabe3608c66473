"""A key as it stands in `keys.json`, written and read strictly: a slip in a file edited by hand must open nothing."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from embedsink.auth.key import Key, KeyKind
from embedsink.auth.parsing import DEPLOYMENT_MAX, LABEL_CHARACTERS_MAX, is_deployment, is_label, normal_origin
from embedsink.errors import Misconfigured, preview


def entry_of(key: Key) -> dict[str, Any]:
    """A key as it stands in `keys.json`."""
    return {
        "key_id": key.key_id,
        "kind": key.kind.value,
        "label": key.label,
        "deployments": None if key.deployments is None else sorted(key.deployments),
        "origins": sorted(key.origins),
        "created_at": iso(key.created_at),
        "expires_at": None if key.expires_at is None else iso(key.expires_at),
        "revoked_at": None if key.revoked_at is None else iso(key.revoked_at),
        "digest": key.digest,
    }


def document_of(keys: list[Key]) -> dict[str, Any]:
    """The content of `keys.json`."""
    entries = [entry_of(key) for key in keys]
    return {"checksum": _checksum(entries), "keys": entries}


def keys_of(content: bytes) -> list[Key]:
    """All keys of a file. One without a checksum was written by hand or by an older program.

    Raises:
        Misconfigured: it is not as `document_of` makes it, to the last field.
    """
    try:
        document = json.loads(content, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"is not JSON ({error}).") from None
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise Misconfigured('is not {"keys": […]}.')
    keys = [key_of(entry, where=f"keys[{place}].") for place, entry in enumerate(document["keys"])]
    if len({key.key_id for key in keys}) < len(keys) or len({key.digest for key in keys}) < len(keys):
        raise Misconfigured("has the same key twice.")  # Which one counts? Only one of them may be revoked.
    if "checksum" in document and document["checksum"] != _checksum(document["keys"]):
        raise Misconfigured(
            "has a checksum that does not match its keys: it is damaged, or was edited by hand. After an edit, look at "
            'every key and delete the member "checksum"; the next change writes a new one.'
        )
    return keys


def key_of(entry: Any, *, where: str = "") -> Key:
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
            raise Misconfigured(f"{where}{name}: {preview(entry[name])} is not {allowed}.") from None
    key = Key(**fields)
    if key.kind is KeyKind.SYNC and key.origins:
        # A page's key is public, and the first result of a sync stays for ever.
        raise Misconfigured(f"{where}origins: a sync key belongs to a pipeline, not to pages. Leave them out.")
    return key


def iso(seconds: float) -> str:
    """A time as it stands in the file: ISO 8601, UTC, milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _checksum(entries: list[Any]) -> str:
    """The SHA-256 of all entries, in hex, however they are indented."""
    return sha256(json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _object(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    # A `revoked_at` that was written above the old one must not lose against it.
    if len(dict(fields)) < len(fields):
        raise ValueError("a field stands twice in its object")
    return dict(fields)


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
    if not is_label(text):
        raise ValueError("no line")
    return str(text)


def _optional(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


_A_LINE = f"one line of at most {LABEL_CHARACTERS_MAX} characters"
_AN_INSTANT = "an instant such as 2026-11-21T09:30:00Z"
_FIELDS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "key_id": (_line, _A_LINE),
    "kind": (KeyKind, f"one of {', '.join(KeyKind)}"),
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

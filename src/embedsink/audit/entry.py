"""An entry of the audit trail: who did what, when and how it ended."""

import json
import os
import pwd
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from embedsink.errors import EmbedsinkError, redact_keys

# The limits of an entry. Longer texts and lists are shortened. A longer entry loses its detail.
TEXT_CHARACTERS_MAX = 256
LIST_ITEMS_MAX = 100
ENTRY_BYTES_MAX = 8_192
# The actors that are neither a key nor a person.
ANONYMOUS = "anonymous"
UNKNOWN = "unknown"
SERVER = "server"


class Action(StrEnum):
    """What was done. No action is removed, and no action changes its meaning."""

    LOGIN = "login"
    LOGIN_FAILED = "login_failed"
    LOGOUT = "logout"
    SESSION_ENDED = "session_ended"  # The identity provider ended sessions.
    KEY_CREATED = "key_created"
    KEY_CHANGED = "key_changed"
    KEY_REVOKED = "key_revoked"
    KEY_REMOVED = "key_removed"  # A live key was deleted from `keys.json`.
    SETTINGS_CHANGED = "settings_changed"
    EXPORT = "export"
    REPLAY = "replay"
    PURGE = "purge"
    IMPORT = "import"
    ERASURE = "erasure"  # It was requested. The entry does not say who is erased.
    ERASED = "erased"
    BACKUP = "backup"
    RESTORE = "restore"
    AUDIT_EXPIRED = "audit_expired"
    AUDIT_RECOVERED = "audit_recovered"  # A crash left an incomplete line.


class Via(StrEnum):
    """How it was done."""

    API = "api"
    PAGE = "page"
    PROVIDER = "provider"
    CLI = "cli"
    SERVER = "server"


class Outcome(StrEnum):
    """How the action ended. `DONE` means that it was permitted: its entry is written before it takes effect."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry, before it has a number and a place in the chain.

    Args:
        action: what was done.
        actor: the id of a key or person, `cli:` and the user of the operating system, or one of the constants above.
        actor_label: the label of the key, or the name of the person.
        via: how it was done.
        client_address: the address of the client; None for commands and the server.
        target: what it was done to, such as a report, a key or a setting.
        outcome: how it ended.
        count: the number of equal actions that the entry stands for.
        detail: further facts as JSON, without secrets.
        at: the time in epoch milliseconds.
    """

    action: Action
    actor: str
    via: Via
    actor_label: str = ""
    client_address: str | None = None
    target: str | None = None
    outcome: Outcome = Outcome.DONE
    count: int = 1
    detail: Mapping[str, Any] = field(default_factory=dict)
    at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)


def failure_text(error: BaseException) -> str:
    """Return the cause of a failure, for the detail of an entry: a message without secrets, or the kind of error."""
    return str(error) if isinstance(error, EmbedsinkError) else type(error).__name__


def command_line_actor() -> str:
    """Return the actor of a command: the user of the operating system."""
    user_id = os.getuid()
    try:
        return f"cli:{pwd.getpwuid(user_id).pw_name}"  # Unlike `getpass`, this trusts no environment variable.
    except KeyError:
        return f"cli:{user_id}"


def encode(entry: Entry, *, number: int, previous: str | None) -> bytes:
    """Return an entry as a line of JSON, without the line break.

    Args:
        entry: the entry.
        number: the number of the entry in the trail.
        previous: the SHA-256 of the previous line, in hex; None for the first line.
    """
    fields: dict[str, Any] = {
        "number": number,
        "at": entry.at,
        "action": str(entry.action),
        "actor": _shorten(entry.actor),
        "actor_label": _shorten(entry.actor_label),
        "via": str(entry.via),
        "client_address": _shorten(entry.client_address),
        "target": _shorten(entry.target),
        "outcome": str(entry.outcome),
        "count": entry.count,
        "detail": _shorten(entry.detail),
        "previous": previous,
    }
    line = _to_json(fields)
    if len(line) > ENTRY_BYTES_MAX:
        line = _to_json(fields | {"detail": {"omitted_bytes": len(_to_json(fields["detail"]))}})
    return line


def _shorten(value: Any) -> Any:
    """Return a value with shortened texts and lists. Keys are redacted first, because a part of a key would stay."""
    if isinstance(value, str):
        value = redact_keys(value)
        return value if len(value) <= TEXT_CHARACTERS_MAX else f"{value[: TEXT_CHARACTERS_MAX - 1]}…"
    if isinstance(value, Mapping):
        return {_shorten(str(name)): _shorten(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_shorten(item) for item in value[:LIST_ITEMS_MAX]]
        return items if len(value) <= LIST_ITEMS_MAX else [*items, f"… and {len(value) - LIST_ITEMS_MAX:,} more"]
    return value


def _to_json(value: object) -> bytes:
    """Return compact JSON without keys, NULs and lone surrogates, which DuckDB can't read."""
    text = redact_keys(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
    return text.replace("\\u0000", "\\ufffd").encode("utf-8", "replace")

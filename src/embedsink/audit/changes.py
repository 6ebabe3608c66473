"""Changes of keys and settings: the differences from what the audit trail has recorded last.

`recorded-keys.json` and `recorded-settings.json` in the folder of the trail contain what is recorded. So a change is
recorded once: by the command that makes it, or by the server that notices it. A server that starts notices earlier
changes too.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embedsink import __version__
from embedsink.audit.entry import UNKNOWN, Action, Entry, Via
from embedsink.audit.trail import AuditTrail
from embedsink.auth.identity import Identity
from embedsink.auth.keys import Key, format_time
from embedsink.data_folder import DataFolder
from embedsink.durable_files import create_folder, replace_durably
from embedsink.permissions import FILE_MODE, FOLDER_MODE, give_to_owner
from embedsink.privacy.hashing import SecretFile
from embedsink.privacy.rules import PrivacyRules

if TYPE_CHECKING:
    from embedsink.privacy.redaction import Privacy  # loads orjson

_RECORDED_KEYS = "recorded-keys.json"
_RECORDED_SETTINGS = "recorded-settings.json"
_PRESET = "privacy.toml: preset"
_FIELD_RULE = "privacy.toml: fields."
_QUESTION_DAYS = "EMBEDSINK_QUESTION_RETENTION_DAYS"
_TOKEN_DIGITS = 8  # as in `errors.redact_keys`


def record_key_changes(folder: DataFolder, before: Sequence[Key], after: Sequence[Key], *, actor: str) -> None:
    """Record the changes of a command, before it writes `keys.json`. The caller holds the lock of the keys.

    Args:
        folder: the data folder.
        before: the keys in the file. Their unrecorded changes are recorded first, with an unknown actor.
        after: the keys to write.
        actor: the actor of the command.

    Raises:
        Unavailable: the entries can't be written.
        OSError: the file with the recorded keys can't be written.
    """
    record_keys(folder, before)
    record_keys(folder, after, actor=actor, via=Via.CLI)


def record_keys(folder: DataFolder, keys: Sequence[Key], *, actor: str = UNKNOWN, via: Via = Via.SERVER) -> None:
    """Record the differences of the keys from the recorded ones. The caller holds the lock of the keys.

    Raises the exceptions of `record_key_changes`.
    """
    path = folder.audit / _RECORDED_KEYS
    recorded = _read(path)
    current = {key.key_id: _describe_key(key) for key in keys}
    if recorded == current:
        return
    entries = [*_removed_keys(recorded, current), *_added_and_changed_keys(recorded, current)]
    _record(folder, path, current, [Entry(actor=actor, via=via, **entry) for entry in entries])


def has_recorded_keys(folder: DataFolder) -> bool:
    """Return whether keys were recorded before."""
    return (folder.audit / _RECORDED_KEYS).exists()


def record_settings(
    folder: DataFolder,
    settings: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    identity: Identity,
    privacy: "Privacy",
    actor: str,
) -> None:
    """Record the settings that differ from those of the last start; at the first start, from the defaults.

    Args:
        folder: the data folder, which the caller has locked.
        settings: the values without secrets, by the name of their variable.
        defaults: the default values.
        identity: the content of `identity.toml`, which has no secrets.
        privacy: the content of `privacy.toml` and `internal.toml`.
        actor: the user of the server's process.

    Raises the exceptions of `record_key_changes`.
    """
    path = folder.audit / _RECORDED_SETTINGS
    recorded = _read(path) or {**defaults, "version": None}
    files = {**_flatten_identity(identity), **_flatten_privacy(privacy)}
    current: dict[str, Any] = {**settings, **files, "version": __version__}
    current = json.loads(json.dumps(current))  # as it is read from the file
    names = [name for name in {**current, **recorded} if current.get(name) != recorded.get(name)]
    entries = [
        Entry(
            action=Action.SETTINGS_CHANGED,
            actor=actor,
            via=Via.SERVER,
            target=name,
            detail={"old": recorded.get(name), "new": current.get(name)},
        )
        for name in names
    ]
    _record(folder, path, current, entries)


def secret_file_of(folder: DataFolder) -> SecretFile:
    """Return the file of the secrets of hashes. It must exist if the settings at the last start hashed something."""
    recorded = _read(folder.audit / _RECORDED_SETTINGS)
    fields = {name.removeprefix(_FIELD_RULE): rule for name, rule in recorded.items() if name.startswith(_FIELD_RULE)}
    rules = PrivacyRules(recorded.get(_PRESET), fields)
    return SecretFile(folder.privacy_secrets, is_expected=rules.has_hashes or bool(recorded.get(_QUESTION_DAYS)))


def _record(folder: DataFolder, path: Path, current: Mapping[str, Any], entries: list[Entry]) -> None:
    """Append entries, and then write what is recorded. After a crash in between, the entries are recorded again."""
    if entries:
        AuditTrail(folder).append(entries)
    if _read(path) != current:
        if not path.parent.is_dir():
            create_folder(path.parent, mode=FOLDER_MODE)
            give_to_owner(path.parent, folder.path)
        replace_durably(path, json.dumps(current, indent=1).encode() + b"\n", mode=FILE_MODE)


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a file; an empty dictionary if it is missing or damaged, so that all is recorded again."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _describe_key(key: Key) -> dict[str, Any]:
    """Return what a key grants. `token` identifies the secret without disclosing it."""
    limits = {"deployments": key.scope.deployments, "tenants": key.scope.tenants, "origins": key.origins}
    times = {"created_at": key.created_at, "expires_at": key.expires_at, "revoked_at": key.revoked_at}
    return {
        "kinds": sorted(key.kinds),
        "label": key.label,
        **{name: None if values is None else sorted(values) for name, values in limits.items()},
        **{name: None if time is None else format_time(time) for name, time in times.items()},
        "names": key.shows_names,
        "token": key.digest[:_TOKEN_DIGITS],
    }


def _removed_keys(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of an entry for each key that was deleted. Commands delete keys that ended long ago."""
    now = format_time(time.time())
    return [
        {"action": Action.KEY_REMOVED, "target": key_id, "detail": key}
        for key_id, key in recorded.items()
        if key_id not in current and key["revoked_at"] is None and (key["expires_at"] or now) >= now
    ]


def _added_and_changed_keys(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of an entry for each new or changed key."""
    entries: list[dict[str, Any]] = []
    for key_id, key in current.items():
        if key_id not in recorded:
            entries.append({"action": Action.KEY_CREATED, "target": key_id, "detail": key})
            continue
        old = recorded[key_id]
        changes = {name: {"old": old.get(name), "new": value} for name, value in key.items() if old.get(name) != value}
        if changes.keys() == {"revoked_at"} and key["revoked_at"] is not None:
            entries.append({"action": Action.KEY_REVOKED, "target": key_id, "detail": {"label": key["label"]}})
        elif changes:
            entries.append({"action": Action.KEY_CHANGED, "target": key_id, "detail": changes})
    return entries


def _flatten_identity(identity: Identity) -> dict[str, Any]:
    """Return the fields of `identity.toml` by name, such as `identity.toml: login.readers`."""
    fields: dict[str, Any] = {}
    if identity.login is not None:
        fields |= {f"login.{name}": value for name, value in identity.login.model_dump(mode="json").items()}
    for issuer in identity.issuers:
        prefix = f"issuers[{issuer.issuer}]"
        fields |= {f"{prefix}.{name}": value for name, value in issuer.model_dump(mode="json").items()}
    return {f"identity.toml: {name}": value for name, value in fields.items()}


def _flatten_privacy(privacy: "Privacy") -> dict[str, Any]:
    """Return the values in `privacy.toml` and `internal.toml` by name, such as `privacy.toml: fields.viewer`.

    Default values are left out.
    """
    rules = privacy.rules
    values: dict[str, Any] = {f"{_FIELD_RULE}{name}": rule for name, rule in rules.fields.items()}
    if rules.preset is not None:
        values[_PRESET] = rules.preset
    if rules.honors_opt_out:
        values["privacy.toml: opt_out"] = "anonymize"
    people = privacy.internal.model_dump(exclude_defaults=True)
    return values | {f"internal.toml: {name}": patterns for name, patterns in people.items()}

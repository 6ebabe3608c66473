"""Redaction: apply the privacy rules to deliveries, rejections and dbt results before they reach the journal.

Without rules, nothing is changed, and the cost is one comparison for a delivery.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NewType
from urllib.parse import urlsplit, urlunsplit

import orjson

from embedsink.key_scope import KeyScope
from embedsink.privacy.hashing import hash_text
from embedsink.privacy.internal import InternalPeople
from embedsink.privacy.rules import PrivacyRules, Rule
from embedsink.protocol.delivery import ParsedDelivery, Rejection
from embedsink.protocol.messages import (
    CONTEXT_FIELDS,
    DELIVERY_FIELDS,
    ENUMERATED_VALUES,
    ENVELOPE_FIELDS,
)
from embedsink.protocol.strict_json import encode
from embedsink.protocol.validation import is_delivery

StorableDelivery = NewType("StorableDelivery", ParsedDelivery)
"""A delivery after redaction. The journal's records are built from nothing else."""
StorableRejection = NewType("StorableRejection", Rejection)
"""A rejection after redaction."""

# The name of the rule for each field of a payload whose values senders choose. A theme falls under `extra`.
PAYLOAD_RULES: Mapping[str, str] = {
    "embedTenant": "tenant",
    "publicId": "public_id",
    "path": "path",
    "previousPath": "path",
    "title": "title",
    "widgetId": "widget_id",
    "member": "member",
    "value": "value",
    "query": "query",
    "chatId": "chat_id",
    "agentId": "agent_id",
    "message": "message",
    "name": "error_name",
    "context": "error_context",
    "locale": "locale",
    "filterUrlParameter": "filter",
}
# The fields of a payload that hold numbers, truth values and words of the protocol. No rules apply to them.
PLAIN_PAYLOAD_FIELDS = frozenset(
    {
        *("deploymentId", "mode", "surface", "widgetCount", "loadDurationMs", "format", "target", "rowCount"),
        *("status", "fatal", "scheme"),
    }
)
_CONTEXT_RULES = {name: name for name in CONTEXT_FIELDS - {"deployment"}}
# The reasons for losses that the forwarder has (docs/browser.md). Others fall under the rule `extra`.
_LOST_REASON = re.compile(r"queue_overflow|expired|unreadable|not_json|http_[0-9]{3}")
_OTHER_LOST_REASON = "other"
# The values that a required field has if its content is dropped. The protocol requires a text, or allows null.
_DROPPED: Mapping[str, Any] = {"path": "", "member": "", "query": "", "message": "", "locale": "", "embedTenant": None}
_REMOVED = object()  # A member with this value is removed.
_WORD_OF_PATH = re.compile(r"[A-Za-z_-]{1,32}|v[0-9]{1,3}|")
_ID_OF_PATH = ":id"
# What an invalid envelope may say where the protocol has words, such as a type that a later version adds.
_PROTOCOL_WORD = re.compile(r"[a-z][a-z0-9:_-]{0,63}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SAFE_FORMS = {"source": _PROTOCOL_WORD, "direction": _PROTOCOL_WORD, "type": _PROTOCOL_WORD, "id": _UUID}
_FIELD_PATH = re.compile(r"((?:[A-Za-z]+|\[[0-9]+\])(?:\.[A-Za-z]+|\[[0-9]+\])*): ")
_FIELD_NAMES = frozenset({*CONTEXT_FIELDS, *DELIVERY_FIELDS, *ENVELOPE_FIELDS, *PAYLOAD_RULES, *PLAIN_PAYLOAD_FIELDS})
_DETAIL = "is not valid. privacy.toml has rules, so the value is not part of this message."

_NOBODY = InternalPeople()

Change = Callable[[Any], Any]
"""A function from a value to the value to store, or to `_REMOVED`."""


@dataclass(frozen=True)
class Privacy:
    """The privacy rules of a server, with the secrets of their hashes.

    Args:
        rules: the rules.
        secrets: the secrets, the newest first. Rules that hash need one.
        internal: the internal people, whose deliveries are marked.
    """

    rules: PrivacyRules = field(default_factory=PrivacyRules)
    secrets: Sequence[bytes] = ()
    internal: InternalPeople = field(default_factory=InternalPeople)

    @cached_property
    def redactor(self) -> "Redactor":
        """The redactor for most viewers."""
        return Redactor(self.rules.of_all_fields(), self.secrets, self.internal)

    @cached_property
    def _opted_out_redactor(self) -> "Redactor":
        return Redactor(self.rules.of_all_fields(is_opted_out=True), self.secrets, self.internal)

    def redactor_for(self, *, is_opted_out: bool) -> "Redactor":
        """Return the redactor for a viewer who has opted out, or has not."""
        return self._opted_out_redactor if is_opted_out else self.redactor

    def members(self) -> dict[str, Any]:
        """Return the rules and the secrets as members of a JSON object."""
        secrets = [secret.hex() for secret in self.secrets]
        return {**asdict(self.rules), "secrets": secrets, "internal": self.internal.model_dump()}

    @classmethod
    def from_members(cls, members: dict[str, Any]) -> "Privacy":
        """Return the rules and the secrets in an object that `members` has returned."""
        secrets = [bytes.fromhex(secret) for secret in members.pop("secrets")]
        internal = InternalPeople(**members.pop("internal"))
        fields = {name: Rule(rule) for name, rule in members.pop("fields").items()}
        return cls(PrivacyRules(fields=fields, **members), secrets, internal)

    def stored_tenants(self, tenants: Sequence[str]) -> list[str]:
        """Return all forms in which the store may contain these tenants: as sent, and hashed with each secret."""
        if self.rules.of_all_fields()["tenant"] is not Rule.HASH:
            return list(tenants)
        hashes = [hash_text("tenant", tenant, secret) for tenant in tenants for secret in self.secrets]
        return [*tenants, *hashes]

    def stored_scope(self, scope: KeyScope) -> KeyScope:
        """Return a scope that allows the tenants in the forms in which the store contains them."""
        if scope.tenants is None:
            return scope
        return replace(scope, tenants=frozenset(self.stored_tenants(sorted(scope.tenants))))


class Redactor:
    """Applies the rules of all fields.

    Args:
        rules: the rule of each field.
        secrets: the secrets of the hashes. The first one is used.
        internal: the internal people.
    """

    def __init__(self, rules: Mapping[str, Rule], secrets: Sequence[bytes], internal: InternalPeople = _NOBODY) -> None:
        self._internal = internal
        self._keeps_all = all(rule is Rule.KEEP for rule in rules.values())
        self._keeps_extra = rules["extra"] is Rule.KEEP
        secret = secrets[0] if secrets else b""
        # Fields without an entry are kept.
        self._changes = {name: _change_of(name, rule, secret) for name, rule in rules.items() if rule is not Rule.KEEP}

    def delivery(self, parsed: ParsedDelivery) -> StorableDelivery:
        """Return a delivery whose context, envelopes, losses and rejections contain only what may be stored.

        A delivery of internal people is marked.
        """
        if not self._internal.is_empty and self._is_internal(parsed):
            parsed = replace(parsed, is_internal=True)
        if self._keeps_all:
            return StorableDelivery(parsed)
        redacted = replace(
            parsed,
            context=self._redact(parsed.context, _CONTEXT_RULES, CONTEXT_FIELDS),
            lost=self._redact_lost(parsed.lost),
            accepted=[self._redact_envelope(envelope, parsed) for envelope in parsed.accepted],
            rejected=[self.rejection(rejection) for rejection in parsed.rejected],
        )
        return StorableDelivery(redacted)

    def rejection(self, rejection: Rejection) -> StorableRejection:
        """Return a rejection that contains only what may be stored.

        Nothing is stored of a body or line that can't be read, because its fields are unknown. In an envelope that can
        be read, values that are not valid for their field are dropped, unless the field's rule is `keep`.
        """
        if self._keeps_all:
            return StorableRejection(rejection)
        redacted = replace(rejection, detail=_redact_detail(rejection.detail))
        try:
            value = orjson.loads(rejection.raw) if rejection.index is not None else None
        except ValueError:
            value = None
        if isinstance(value, dict):
            redact = self._redact_unsafe_delivery if is_delivery(value) else self._redact_unsafe_envelope
            redacted.raw = encode(redact(value))
        else:
            redacted.raw = b""
            redacted.omitted_bytes = len(rejection.raw)
        return StorableRejection(redacted)

    def sync(
        self, result: dict[str, Any], extra: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the fields of a dbt result, and the fields that the spec does not have, as they may be stored.

        The rule `path` applies to the paths of the generated files.
        """
        if self._keeps_all:
            return result, extra
        rules = {"path": "path"}
        files = [self._redact(file, rules, frozenset(rules)) for file in result["generatedFiles"]]
        return {**result, "generatedFiles": files}, self._redact(extra or {}, {}, frozenset()) or None

    def _is_internal(self, parsed: ParsedDelivery) -> bool:
        """Return whether the context of a delivery, or a `ready` event in it, names internal people."""
        contexts = [parsed.context]
        for envelope in parsed.accepted:
            if envelope["type"].endswith(":event:ready"):
                payload = envelope["payload"]
                contexts.append({"deployment": payload.get("deploymentId"), "tenant": payload.get("embedTenant")})
        return any(map(self._internal.includes, contexts))

    def _redact_envelope(self, envelope: dict[str, Any], parsed: ParsedDelivery) -> dict[str, Any]:
        """Return a valid envelope as it may be stored."""
        known_fields = parsed.catalog.known_fields[envelope["type"]]
        payload = self._redact(envelope["payload"], PAYLOAD_RULES, known_fields)
        return {**self._redact(envelope, {}, ENVELOPE_FIELDS), "payload": payload}

    def _redact(
        self, members: Mapping[str, Any], rules: Mapping[str, str], known_fields: frozenset[str]
    ) -> dict[str, Any]:
        """Return the members of an object as they may be stored.

        Args:
            members: the members.
            rules: the name of the rule of each field. Known fields without a rule are kept.
            known_fields: the fields of the object. The rule `extra` applies to all others.
        """
        redacted = {}
        for name, value in members.items():
            rule_name = rules.get(name) if name in known_fields else "extra"
            change = None if rule_name is None else self._changes.get(rule_name)
            stored = value if change is None or value is None else change(value)
            if stored is not _REMOVED:
                redacted[name] = stored
            elif name in known_fields and name in _DROPPED:
                redacted[name] = _DROPPED[name]
        return redacted

    def _redact_lost(self, lost: dict[str, int]) -> dict[str, int]:
        """Return the numbers of losses. If the rule `extra` is not `keep`, the reasons of other clients are `other`."""
        if self._keeps_extra:
            return lost
        redacted: dict[str, int] = {}
        for reason, count in lost.items():
            name = reason if _LOST_REASON.fullmatch(reason) else _OTHER_LOST_REASON
            redacted[name] = redacted.get(name, 0) + count
        return redacted

    def _redact_unsafe_delivery(self, delivery: dict[str, Any]) -> dict[str, Any]:
        """Return a delivery of one envelope that was rejected because of the delivery's fields."""
        redacted = self._redact_unsafe(delivery, {}, DELIVERY_FIELDS)
        if isinstance(delivery.get("context"), dict):
            redacted["context"] = self._redact_unsafe(delivery["context"], _CONTEXT_RULES, CONTEXT_FIELDS)
        events = delivery["events"] if isinstance(delivery["events"], list) else []
        redacted["events"] = [self._redact_unsafe_envelope(event) for event in events if isinstance(event, dict)]
        return redacted

    def _redact_unsafe_envelope(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Return a rejected envelope. The words and the id of the protocol stay, so that a replay can accept it."""
        redacted = self._redact_unsafe(envelope, {}, ENVELOPE_FIELDS)
        for name, form in _SAFE_FORMS.items():
            value = envelope.get(name)
            if isinstance(value, str) and form.fullmatch(value):
                redacted[name] = value
        if isinstance(envelope.get("payload"), dict):
            fields = frozenset({*PAYLOAD_RULES, *PLAIN_PAYLOAD_FIELDS})
            redacted["payload"] = self._redact_unsafe(envelope["payload"], PAYLOAD_RULES, fields)
        return redacted

    def _redact_unsafe(
        self, members: Mapping[str, Any], rules: Mapping[str, str], known_fields: frozenset[str]
    ) -> dict[str, Any]:
        """Return the members of an object that was not validated. The arguments are those of `_redact`."""
        safe = {name: value for name, value in members.items() if self._is_safe(name, value, rules, known_fields)}
        return self._redact(safe, rules, known_fields)

    def _is_safe(self, name: str, value: Any, rules: Mapping[str, str], known_fields: frozenset[str]) -> bool:
        """Return whether a value has the form that its field's rule expects; if not, it is dropped."""
        if name not in known_fields:
            return True  # The rule `extra` applies to any value.
        if name not in rules:
            return value in ENUMERATED_VALUES if isinstance(value, str) else not isinstance(value, dict | list)
        is_kept = rules[name] not in self._changes
        return is_kept or value is None or isinstance(value, str) or rules[name] == "value"


def _change_of(field: str, rule: Rule, secret: bytes) -> Change:
    """Return the function that applies a rule to a valid value of a field. The rule is not `keep`."""
    match rule:
        case Rule.STRIP_QUERY:
            return strip_query
        case Rule.TEMPLATE:
            return fold_ids
        case _ if field == "filter":
            return partial(_redact_filter, secret if rule is Rule.HASH else None)
        case Rule.HASH:
            return partial(_hash_texts, field, secret)
    return lambda _: _REMOVED


def _hash_texts(field: str, secret: bytes, value: Any) -> Any:
    """Return a JSON value with each text and number hashed. The names of members stay."""
    if isinstance(value, dict):
        return {name: _hash_texts(field, secret, child) for name, child in value.items()}
    if isinstance(value, list):
        return [_hash_texts(field, secret, child) for child in value]
    if value is None or isinstance(value, bool):
        return value
    return hash_text(field, str(value), secret)


def _redact_filter(secret: bytes | None, text: str) -> str:
    """Return a filter `f_<view>.<dimension>=<JSON>` with its value hashed; with null instead if the secret is None."""
    name, _, value = text.partition("=")
    if secret is None:
        return f"{name}=null"
    try:
        content = orjson.loads(value)
    except ValueError:
        content = value
    return f"{name}={encode(_hash_texts('filter', secret, content)).decode()}"


def strip_query(url: str) -> str:
    """Return a URL or a path without its query, its fragment, and the user and password of its host."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:  # such as an invalid IPv6 address
        return ""


def fold_ids(url: str) -> str:
    """Return a URL or a path without its query, with `:id` for each segment of the path that may be an id.

    A segment stays if it has at most 32 ASCII letters, `-` and `_`, or is a version such as `v2`.
    """
    try:
        parts = urlsplit(strip_query(url))
    except ValueError:
        return ""
    segments = [one if _WORD_OF_PATH.fullmatch(one) else _ID_OF_PATH for one in parts.path.split("/")]
    return urlunsplit((parts.scheme, parts.netloc, "/".join(segments), "", ""))


def _redact_detail(detail: str) -> str:
    """Return the explanation of a rejection without the values and unknown names that it quotes."""
    match = _FIELD_PATH.match(detail)
    path = match[1] if match else ""
    is_known = all(name in _FIELD_NAMES for name in re.findall("[A-Za-z]+", path))
    return f"{path if path and is_known else 'envelope'}: {_DETAIL}"

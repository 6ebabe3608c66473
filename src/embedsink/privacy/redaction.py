"""Redaction: apply the privacy rules to deliveries, rejections and dbt results before they reach the journal.

Without rules, it only marks internal people and rejects erased ones.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NewType

import orjson

from embedsink.key_scope import KeyScope
from embedsink.privacy.erased_people import ErasedPeople, context_in, viewers_in
from embedsink.privacy.hashing import hash_text
from embedsink.privacy.internal import InternalPeople
from embedsink.privacy.rules import PrivacyRules, Rule
from embedsink.privacy.urls import fold_ids, strip_query
from embedsink.protocol.delivery import ParsedDelivery, Rejection
from embedsink.protocol.messages import (
    CONTEXT_FIELDS,
    DELIVERY_FIELDS,
    ENUMERATED_VALUES,
    ENVELOPE_FIELDS,
    FILTER_NAME_CHARACTERS_MAX,
    VENDOR_PATTERN,
    Catalog,
)
from embedsink.protocol.strict_json import decode_fast, encode
from embedsink.protocol.validation import is_delivery
from embedsink.reasons import Reason

CheckedDelivery = NewType("CheckedDelivery", ParsedDelivery)
"""A delivery after `Privacy.reject_erased`."""
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
    "filters": "value",
    "query": "query",
    "text": "query",
    "chatId": "chat_id",
    "agentId": "agent_id",
    "message": "message",
    "name": "error_name",
    "context": "error_context",
    "locale": "locale",
    "filterUrlParameter": "filter",
}
# The fields of a payload to which no rules apply: numbers, truth values, and words that the protocol lists.
PLAIN_PAYLOAD_FIELDS: Mapping[str, type] = {
    **dict.fromkeys(("deploymentId", "widgetCount", "loadDurationMs", "rowCount"), float),
    **dict.fromkeys(("mode", "surface", "format", "target", "status", "rating", "scheme"), str),
    "fatal": bool,
}
# The same, with the fields of contexts, envelopes and deliveries.
_PLAIN_FIELDS: Mapping[str, type] = {
    **PLAIN_PAYLOAD_FIELDS,
    **dict.fromkeys(("deployment", "seq", "timestamp", "sentAt"), float),
    "optedOut": bool,
}
_CONTEXT_RULES = {name: name for name in CONTEXT_FIELDS - {"deployment", "vendor"}}
# The reasons for losses that the forwarder has (docs/browser.md). Others fall under the rule `extra`.
_LOST_REASON = re.compile(r"queue_overflow|not_stored|before_send|expired|unreadable|not_json|http_[0-9]{3}")
_OTHER_LOST_REASON = "other"
# The values that a required field has if its content is dropped. The protocol requires a text, or allows null.
_DROPPED: Mapping[str, Any] = {"path": "", "member": "", "query": "", "message": "", "locale": "", "embedTenant": None}
# The same for feedback, which requires a chat.
_DROPPED_FROM_FEEDBACK: Mapping[str, Any] = {**_DROPPED, "chatId": ""}
# The field of a payload that is an object of values.
_FILTERS = "filters"
_REMOVED = object()  # A member with this value is removed.
_FILTER = re.compile(r"f_[^.=]+\.[^=]+=")
# What an invalid envelope may say where the protocol has words, such as a type that a later version adds.
_PROTOCOL_WORD = re.compile(r"[a-z][a-z0-9:_-]{0,63}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VENDOR = re.compile(VENDOR_PATTERN)
_SAFE_FORMS = {"source": _PROTOCOL_WORD, "direction": _PROTOCOL_WORD, "type": _PROTOCOL_WORD, "id": _UUID}
_ERASED_CONTENT = "The content names an erased person, and is not stored."
_TOO_MANY_VIEWERS = "The content names too many viewers to compare with erased people, and is not stored."
# Comparing a viewer takes about 10 µs.
_VIEWERS_MAX = 2_000
_OPTED_OUT = "optedout"  # the field `optedOut`, in lower case
_FIELD_PATH = re.compile(r"((?:[A-Za-z]+|\[[0-9]+\])(?:\.[A-Za-z]+|\[[0-9]+\])*): ")
_FIELD_NAMES = frozenset({*CONTEXT_FIELDS, *DELIVERY_FIELDS, *ENVELOPE_FIELDS, *PAYLOAD_RULES, *PLAIN_PAYLOAD_FIELDS})
# The fields of deliveries and envelopes whose values are objects or arrays of their own.
_CONTAINERS = frozenset({"context", "events", "key"})

Change = Callable[[Any], Any]
"""A function from a value to the value to store, or to `_REMOVED`."""


@dataclass(frozen=True)
class Privacy:
    """The privacy rules of a server, with the secrets of their hashes.

    Args:
        rules: the rules.
        secrets: the secrets, the newest first. Rules that hash need one.
        internal: the internal people, whose deliveries are marked.
        erased: the erased people, whose deliveries are rejected.
    """

    rules: PrivacyRules = field(default_factory=PrivacyRules)
    secrets: Sequence[bytes] = field(default=(), repr=False)
    internal: InternalPeople = field(default_factory=InternalPeople)
    erased: ErasedPeople = field(default_factory=ErasedPeople)

    @cached_property
    def redactor(self) -> "Redactor":
        """The redactor for viewers who have not opted out."""
        return Redactor(self.rules.of_all_fields(), self.secrets)

    @cached_property
    def _opted_out_redactor(self) -> "Redactor":
        return Redactor(self.rules.of_all_fields(is_opted_out=True), self.secrets)

    def redact(self, delivery: CheckedDelivery, *, is_opted_out: bool = False) -> StorableDelivery:
        """Return a delivery that contains only what may be stored. A delivery of internal people is marked.

        Args:
            delivery: the delivery.
            is_opted_out: whether the viewer has opted out in another way than by the delivery's field `optedOut`.
        """
        parsed: ParsedDelivery = delivery
        if not self.internal.is_empty and self._is_internal(parsed):
            parsed = replace(parsed, is_internal=True)
        if self.rules.keeps_everything:
            return StorableDelivery(parsed)
        is_opted_out |= parsed.is_opted_out or any(_says_opted_out(one.raw) for one in parsed.rejected)
        redactor = self._opted_out_redactor if is_opted_out else self.redactor
        redacted = redactor.redact_accepted(parsed)
        if parsed.rejected:
            rejected = [self._redact_rejection(rejection, redactor, parsed.catalog) for rejection in parsed.rejected]
            redacted = replace(redacted, rejected=rejected)
        return StorableDelivery(redacted)

    def reject_erased(self, parsed: ParsedDelivery) -> CheckedDelivery:
        """Return a delivery of an erased person with all envelopes rejected and without content; others unchanged.

        Of other deliveries, the rejected envelopes that name an erased person lose their content.
        """
        if self.erased.is_empty:
            return CheckedDelivery(parsed)
        contexts = self._contexts_of(parsed)
        viewer = parsed.context.get("viewer")
        if viewer is not None and self._includes_erased(viewer, contexts):
            detail = f"context.viewer: {Reason.ERASED.sentence} Don't send its events."
            return CheckedDelivery(parsed.reject_all(Reason.ERASED, detail))
        if not parsed.rejected:
            return CheckedDelivery(parsed)
        rejected = [self._without_erased(rejection, contexts) for rejection in parsed.rejected]
        return CheckedDelivery(replace(parsed, rejected=rejected))

    def _includes_erased(self, viewer: str, contexts: Iterable[Mapping[str, Any]]) -> bool:
        """Return whether a viewer is erased in one of the deployments and tenants that contexts name."""
        people = self.erased.find(self.stored_forms("viewer", viewer))
        if not people:
            return False
        named = [(context.get("deployment"), context.get("tenant")) for context in contexts]
        deployments = {deployment for deployment, _ in named if isinstance(deployment, int)}
        tenants = self.stored_tenants([tenant for _, tenant in named if isinstance(tenant, str)])
        return any(self.erased.is_erased_in(person, deployments, tenants) for person in people)

    def _without_erased(self, rejection: Rejection, contexts: Sequence[Mapping[str, Any]]) -> Rejection:
        """Return a rejection, without its content if that names an erased person.

        Args:
            rejection: the rejection.
            contexts: the contexts of its delivery. It may have another one of its own.
        """
        viewers = set(viewers_in(rejection.raw))  # A long body may name one viewer many times.
        if not viewers:
            return rejection
        if len(viewers) > _VIEWERS_MAX:
            return rejection.without_content(f"{rejection.reason.sentence} {_TOO_MANY_VIEWERS}")
        contexts = [*contexts, context_in(rejection.raw)]
        if any(self._includes_erased(viewer, contexts) for viewer in viewers):
            return rejection.without_content(f"{rejection.reason.sentence} {_ERASED_CONTENT}")
        return rejection

    def redact_unreadable(self, rejection: Rejection) -> StorableRejection:
        """Return the rejection of a body that can't be read. It may be of a viewer who has opted out."""
        if not self.erased.is_empty:
            rejection = self._without_erased(rejection, [])
        return StorableRejection(self._opted_out_redactor.redact_unreadable(rejection))

    def _redact_rejection(self, rejection: Rejection, redactor: "Redactor", catalog: Catalog) -> Rejection:
        """Return a rejection that contains only what may be stored. `redactor` is that of its delivery."""
        try:
            value = orjson.loads(rejection.raw)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            return self._opted_out_redactor.redact_unreadable(rejection)
        try:
            return redactor.redact_rejection(rejection, value, catalog)
        except RecursionError:  # An unknown field is nested too deeply to be encoded.
            return redactor.redact_unreadable(rejection)

    def _is_internal(self, parsed: ParsedDelivery) -> bool:
        """Return whether the context of a delivery, or a `ready` event in it, names internal people."""
        return any(map(self.internal.includes, self._contexts_of(parsed)))

    @staticmethod
    def _contexts_of(parsed: ParsedDelivery) -> list[dict[str, Any]]:
        """Return the context of a delivery, and the deployment and tenant of each `ready` event in it."""
        contexts = [parsed.context]
        for envelope in parsed.accepted:
            if envelope["type"].endswith(":event:ready"):
                payload = envelope["payload"]
                contexts.append({"deployment": payload.get("deploymentId"), "tenant": payload.get("embedTenant")})
        return contexts

    @cached_property
    def encoded(self) -> str:
        """The rules, the secrets, the internal and the erased people as JSON, for the worker process."""
        members = {
            **asdict(self.rules),
            "secrets": [secret.hex() for secret in self.secrets],
            "internal": self.internal.model_dump(),
            "erased": self.erased.to_json(),
        }
        return encode(members).decode()

    @classmethod
    def decode(cls, text: str) -> "Privacy":
        """Return the rules, the secrets and the people in a text of `encoded`."""
        members = orjson.loads(text)
        secrets = [bytes.fromhex(secret) for secret in members.pop("secrets")]
        internal = InternalPeople(**members.pop("internal"))
        erased = ErasedPeople.from_json(members.pop("erased"))
        fields = {name: Rule(rule) for name, rule in members.pop("fields").items()}
        return cls(PrivacyRules(fields=fields, **members), secrets, internal, erased)

    def stored_tenants(self, tenants: Sequence[str]) -> list[str]:
        """Return all forms in which the store may contain these tenants: as sent, and hashed with each secret."""
        hashes = [one for tenant in tenants for one in self.hashes("tenant", tenant)]
        return list(dict.fromkeys([*tenants, *hashes]))  # The hash of a hash is the same.

    def stored_forms(self, field: str, text: str) -> list[str]:
        """Return all forms in which the store may contain a field's value: as sent, and hashed with each secret."""
        return list(dict.fromkeys([text, *self.hashes(field, text)]))  # The text may be a hash.

    def hashes(self, field: str, text: str) -> list[str]:
        """Return the hashes of a field's value, with each secret, the newest first."""
        return [hash_text(field, text, secret) for secret in self.secrets]

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
    """

    def __init__(self, rules: Mapping[str, Rule], secrets: Sequence[bytes]) -> None:
        self._keeps_all = all(rule is Rule.KEEP for rule in rules.values())
        self._keeps_extra = rules["extra"] is Rule.KEEP
        secret = secrets[0] if secrets else b""
        # Fields without an entry are kept.
        self._changes = {name: _change_of(name, rule, secret) for name, rule in rules.items() if rule is not Rule.KEEP}

    def redact_accepted(self, parsed: ParsedDelivery) -> ParsedDelivery:
        """Return a delivery whose context, accepted envelopes and losses contain only what may be stored."""
        if self._keeps_all:
            return parsed
        return replace(
            parsed,
            context=self._redact(parsed.context, _CONTEXT_RULES, CONTEXT_FIELDS),
            lost=self._redact_lost(parsed.lost),
            accepted=[self._redact_envelope(envelope, parsed) for envelope in parsed.accepted],
        )

    def redact_rejection(self, rejection: Rejection, value: dict[str, Any], catalog: Catalog) -> Rejection:
        """Return a rejection that contains only what may be stored.

        Values that are not valid for their field are dropped, unless the field's rule is `keep`. What is left may be a
        valid envelope that was never sent. So a rejection that is changed has the size of its input in `omitted_bytes`,
        and no replay accepts it. The exception is a wrong source: all other fields of such an envelope are valid.

        Args:
            rejection: the rejection.
            value: its input: an envelope, or a delivery.
            catalog: the message types.
        """
        if self._keeps_all:
            return rejection
        redact = self._redact_unsafe_delivery if is_delivery(value) else self._redact_unsafe_envelope
        dropped: list[str] = []
        redacted = redact(value, catalog, dropped)
        # `decode_fast` returns None if a key is repeated: `value` then lacks what was sent first.
        is_as_sent = redacted == value and decode_fast(rejection.raw) is not None
        may_be_valid = not is_as_sent and rejection.reason is not Reason.WRONG_SOURCE
        omitted_bytes = len(rejection.raw) if dropped or may_be_valid else 0
        return replace(rejection, detail=_redact_detail(rejection), raw=encode(redacted), omitted_bytes=omitted_bytes)

    def redact_unreadable(self, rejection: Rejection) -> Rejection:
        """Return a rejection without its input, because the fields of the input are unknown."""
        if self._keeps_all:
            return rejection
        return rejection.without_content(_redact_detail(rejection))

    def redact_sync(
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
        required = _DROPPED_FROM_FEEDBACK if "rating" in known_fields else _DROPPED
        for name, value in members.items():
            rule_name = rules.get(name) if name in known_fields else "extra"
            change = None if rule_name is None else self._changes.get(rule_name)
            stored = value if change is None or value is None else _apply(change, name, value)
            if stored is not _REMOVED:
                redacted[name] = stored
            elif name in known_fields and name in required:
                redacted[name] = required[name]
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

    def _redact_unsafe_delivery(self, delivery: dict[str, Any], catalog: Catalog, dropped: list[str]) -> dict[str, Any]:
        """Return a delivery that was rejected: an envelope with the delivery's fields, or a delivery in an array.

        The names of fields without a valid value are added to `dropped`.
        """
        redacted = self._redact_unsafe(delivery, {}, DELIVERY_FIELDS, dropped)
        context = delivery.get("context")
        if isinstance(context, dict):
            redacted["context"] = self._redact_unsafe(context, _CONTEXT_RULES, CONTEXT_FIELDS, dropped)
        elif context is not None:
            dropped.append("context")
        if not self._keeps_extra:  # An unknown field made the delivery invalid.
            known = DELIVERY_FIELDS | CONTEXT_FIELDS
            dropped += [
                name for name in (*delivery, *(context if isinstance(context, dict) else ())) if name not in known
            ]
        events = delivery["events"] if isinstance(delivery["events"], list) else [None]
        envelopes = [event for event in events if isinstance(event, dict)]
        if len(envelopes) < len(events):
            dropped.append("events")
        redacted["events"] = [self._redact_unsafe_envelope(envelope, catalog, dropped) for envelope in envelopes]
        return redacted

    def _redact_unsafe_envelope(self, envelope: dict[str, Any], catalog: Catalog, dropped: list[str]) -> dict[str, Any]:
        """Return a rejected envelope. The words and the id of the protocol stay.

        The whole payload of an unknown type falls under `extra`. The names of fields without a valid value are added to
        `dropped`.
        """
        words = {
            name: envelope[name]
            for name, form in _SAFE_FORMS.items()
            if isinstance(envelope.get(name), str) and form.fullmatch(envelope[name])
        }
        payload = envelope.get("payload")
        rest = {name: value for name, value in envelope.items() if name not in words}
        if isinstance(payload, dict):
            del rest["payload"]
            known_fields = catalog.known_fields.get(str(envelope.get("type")), frozenset())
            words["payload"] = self._redact_unsafe(payload, PAYLOAD_RULES, known_fields, dropped)
        return self._redact_unsafe(rest, {}, ENVELOPE_FIELDS, dropped) | words

    def _redact_unsafe(
        self,
        members: Mapping[str, Any],
        rules: Mapping[str, str],
        known_fields: frozenset[str],
        dropped: list[str],
    ) -> dict[str, Any]:
        """Return the members of an object that was not validated. The first three arguments are those of `_redact`.

        The names of known fields without a valid value are added to `dropped`. Fields with objects and arrays of their
        own are left to the caller.
        """
        valid = {}
        for name, value in members.items():
            if name not in known_fields or self._has_expected_form(name, value, rules):
                valid[name] = value
            elif name not in _CONTAINERS:
                dropped.append(name)
        return self._redact(valid, rules, known_fields)

    def _has_expected_form(self, name: str, value: Any, rules: Mapping[str, str]) -> bool:
        """Return whether a value has the form that its known field requires. Any value does if the rule is `keep`."""
        if value is None:
            return True
        if name == "vendor":
            return isinstance(value, str) and _VENDOR.fullmatch(value) is not None
        if name not in rules:
            return _is_plain(value, _PLAIN_FIELDS.get(name))
        is_kept = rules[name] not in self._changes
        if name == _FILTERS and not is_kept:
            return isinstance(value, dict) and all(len(one) <= FILTER_NAME_CHARACTERS_MAX for one in value)
        return is_kept or isinstance(value, str) or rules[name] == "value"


def _says_opted_out(raw: bytes) -> bool:
    """Return whether rejected input has the field `optedOut`. It counts anywhere except in a payload."""
    if _OPTED_OUT.encode() not in raw.lower() and b"\\" not in raw:
        return False
    try:
        containers = [orjson.loads(raw)]
    except ValueError:
        return False  # Its own redaction assumes that the viewer has opted out.
    while containers:
        container = containers.pop()
        if isinstance(container, dict):
            if any(name.lower() == _OPTED_OUT and value not in (None, False) for name, value in container.items()):
                return True
            containers += [value for name, value in container.items() if name != "payload"]
        elif isinstance(container, list):
            containers += container
    return False


def _is_plain(value: Any, expected_type: type | None) -> bool:
    """Return whether a value is of the expected type: a number, a truth value, or a word that the protocol lists."""
    if isinstance(value, bool):
        return expected_type is bool
    if isinstance(value, int | float):
        return expected_type is float
    return expected_type is str and isinstance(value, str) and value in ENUMERATED_VALUES


def _apply(change: Change, field: str, value: Any) -> Any:
    """Return the value to store, or `_REMOVED`. Of filters, each value is changed, and their names stay."""
    if field != _FILTERS or not isinstance(value, dict):
        return change(value)
    changed = {name: one if one is None else change(one) for name, one in value.items()}
    return {name: None if one is _REMOVED else one for name, one in changed.items()}


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
            return partial(_hash_value, field, secret)
    return lambda _: _REMOVED


def _hash_value(field: str, secret: bytes, value: Any) -> str:
    """Return the hash of a text, or of any other value as JSON."""
    return hash_text(field, value if isinstance(value, str) else encode(value).decode(), secret)


def _redact_filter(secret: bytes | None, text: str) -> Any:
    """Return a filter `f_<view>.<dimension>=<JSON>` with its value hashed; with null instead if the secret is None."""
    match = _FILTER.match(text)
    if match is None:
        return _REMOVED
    if secret is None:
        return f"{match[0]}null"
    value: Any = text[match.end() :]
    with suppress(ValueError):
        value = orjson.loads(value)
    return f'{match[0]}"{_hash_value("filter", secret, value)}"'


def _redact_detail(rejection: Rejection) -> str:
    """Return the explanation of a rejection without the values and unknown names that it may quote."""
    match = _FIELD_PATH.match(rejection.detail)
    path = match[1] if match else ""
    is_known = path and all(name in _FIELD_NAMES for name in re.findall("[A-Za-z]+", path))
    subject = path if is_known else "body" if rejection.index is None else "envelope"
    return f"{subject}: {rejection.reason.sentence} Privacy rules forbid quoting the value."

"""The privacy rules: the file `privacy.toml` in the data folder. The parser is strict: a typing error must not store
what should be dropped.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from embedsink.errors import Misconfigured, preview, suggestion


class Rule(StrEnum):
    """How a field is stored. Each rule is stricter than the one before it."""

    KEEP = "keep"
    STRIP_QUERY = "strip_query"
    TEMPLATE = "template"
    HASH = "hash"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Field:
    """A field that rules apply to.

    Args:
        strict: the rule of the preset `strict`.
        anonymous: the rule for viewers who have opted out. The stricter of this and the configured rule applies.
        is_url: whether the values are URLs or their paths, so that `strip_query` and `template` apply.
    """

    strict: Rule
    anonymous: Rule
    is_url: bool = False

    @property
    def rules(self) -> list[Rule]:
        """The rules that the field may have."""
        return [rule for rule in Rule if self.is_url or rule not in (Rule.STRIP_QUERY, Rule.TEMPLATE)]


FIELDS: Mapping[str, Field] = {
    "viewer": Field(Rule.HASH, Rule.DROP),
    "session": Field(Rule.HASH, Rule.DROP),
    "tenant": Field(Rule.HASH, Rule.KEEP),
    "page": Field(Rule.DROP, Rule.DROP, is_url=True),
    "path": Field(Rule.HASH, Rule.TEMPLATE, is_url=True),
    "title": Field(Rule.DROP, Rule.DROP),
    "query": Field(Rule.DROP, Rule.DROP),
    "value": Field(Rule.DROP, Rule.DROP),
    "message": Field(Rule.DROP, Rule.DROP),
    "error_name": Field(Rule.KEEP, Rule.KEEP),
    "error_context": Field(Rule.DROP, Rule.DROP),
    "filter": Field(Rule.DROP, Rule.DROP),
    "chat_id": Field(Rule.HASH, Rule.DROP),
    "agent_id": Field(Rule.KEEP, Rule.KEEP),
    "public_id": Field(Rule.KEEP, Rule.KEEP),
    "widget_id": Field(Rule.KEEP, Rule.KEEP),
    "member": Field(Rule.KEEP, Rule.KEEP),
    "locale": Field(Rule.KEEP, Rule.KEEP),
    "extra": Field(Rule.DROP, Rule.DROP),
}
_STRICTNESS = {rule: number for number, rule in enumerate(Rule)}
_OPT_OUT = ("ignore", "anonymize")

Preset = Literal["strict"]


@dataclass(frozen=True)
class PrivacyRules:
    """The content of `privacy.toml`.

    Args:
        preset: the preset whose rules apply to fields without a rule; None to keep them.
        fields: the rules of single fields.
        honors_opt_out: whether deliveries of viewers who have opted out are stored without personal data.
    """

    preset: Preset | None = None
    fields: Mapping[str, Rule] = field(default_factory=dict)
    honors_opt_out: bool = False

    @cached_property
    def keeps_everything(self) -> bool:
        """Whether all fields of all viewers are kept."""
        return set(self.of_all_fields(is_opted_out=True).values()) == {Rule.KEEP}

    @property
    def has_hashes(self) -> bool:
        """Whether a rule hashes a field, which needs a secret."""
        return Rule.HASH in self.of_all_fields().values()

    def of_all_fields(self, *, is_opted_out: bool = False) -> dict[str, Rule]:
        """Return the rule of each field, for a viewer who has opted out or has not."""
        rules = {name: self.fields.get(name, self._default(one)) for name, one in FIELDS.items()}
        if not is_opted_out or not self.honors_opt_out:
            return rules
        return {name: max(rule, FIELDS[name].anonymous, key=_STRICTNESS.__getitem__) for name, rule in rules.items()}

    def _default(self, field_: Field) -> Rule:
        """Return the rule of a field that `fields` does not name."""
        return Rule.KEEP if self.preset is None else field_.strict


def read_privacy_rules(path: Path) -> PrivacyRules:
    """Return the content of a `privacy.toml`. Without the file, all fields are kept.

    Raises:
        Misconfigured: the file can't be read, is not TOML, or has an unknown name or an invalid value.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if path.is_symlink():
            raise Misconfigured(f"{path}: is a link to a missing file. Correct the link, or delete it.") from None
        return PrivacyRules()
    except OSError as error:
        raise Misconfigured(f"{path}: {error.strerror}. Make it readable for this user.") from None
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, UnicodeDecodeError, deep nesting
        raise Misconfigured(f"{path.name}: is not TOML ({error}). Correct the file.") from None
    try:
        return _parse(content)
    except ValueError as error:
        raise Misconfigured(f"{path.name}: {error}") from None


def _parse(content: dict[str, Any]) -> PrivacyRules:
    """Return the rules in the content of a file. Raise ValueError, with a message, if it is invalid."""
    for name in content:
        if name not in ("preset", "opt_out", "fields"):
            raise ValueError(f"{preview(name)} is not a setting. Use preset, opt_out or the table [fields].")
    preset = content.get("preset")
    if preset not in (None, "strict"):
        raise ValueError(f'preset: {preview(preset)} is not "strict". Write "strict", or leave it out.')
    opt_out = content.get("opt_out", "ignore")
    if opt_out not in _OPT_OUT:
        raise ValueError(f"opt_out: {preview(opt_out)} is not a value. Use one of {', '.join(_OPT_OUT)}.")
    fields = content.get("fields", {})
    if not isinstance(fields, dict):
        raise ValueError(f"fields: {preview(fields)} is not a table. Write [fields], and a rule on each line below it.")
    rules = {name: _parse_rule(name, value) for name, value in fields.items()}
    return PrivacyRules(preset, rules, honors_opt_out=opt_out == "anonymize")


def _parse_rule(name: str, value: object) -> Rule:
    """Return the rule of a field. Raise ValueError for an unknown field, or a rule that the field can't have."""
    if name not in FIELDS:
        raise ValueError(f"fields: {preview(name)} is not a field. {suggestion(name, FIELDS)}")
    allowed = FIELDS[name].rules
    if value not in allowed:
        raise ValueError(f"fields.{name}: {preview(value)} is not a rule. Use one of {', '.join(allowed)}.")
    return Rule(str(value))

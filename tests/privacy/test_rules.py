"""The file `privacy.toml`: valid rules, and a sentence for each error."""

from pathlib import Path

import pytest

from embedsink.errors import Misconfigured
from embedsink.privacy.redaction import PAYLOAD_RULES, PLAIN_PAYLOAD_FIELDS
from embedsink.privacy.rules import FIELDS, PrivacyRules, Rule, read_privacy_rules
from embedsink.protocol.messages import CONTEXT_FIELDS, catalog_for


def rules_in(folder: Path, text: str) -> PrivacyRules:
    path = folder / "privacy.toml"
    path.write_text(text)
    return read_privacy_rules(path)


def test_every_field_of_the_protocol_has_a_rule_or_is_plain() -> None:
    fields = frozenset().union(*catalog_for("svc").known_fields.values())
    assert fields == PAYLOAD_RULES.keys() | PLAIN_PAYLOAD_FIELDS.keys()
    assert PAYLOAD_RULES.keys().isdisjoint(PLAIN_PAYLOAD_FIELDS.keys())
    assert FIELDS.keys() == {*PAYLOAD_RULES.values(), *CONTEXT_FIELDS, "extra"} - {"deployment", "vendor"}


def test_without_a_file_everything_is_kept(tmp_path: Path) -> None:
    rules = read_privacy_rules(tmp_path / "privacy.toml")
    for is_opted_out in (False, True):
        assert set(rules.of_all_fields(is_opted_out=is_opted_out).values()) == {Rule.KEEP}
    assert not rules.has_hashes


def test_a_preset_applies_to_fields_without_a_rule(tmp_path: Path) -> None:
    rules = rules_in(tmp_path, 'preset = "strict"\n[fields]\npath = "template"\nviewer = "keep"\n').of_all_fields()
    assert (rules["path"], rules["viewer"], rules["tenant"], rules["query"]) == ("template", "keep", "hash", "drop")


def test_the_stricter_rule_applies_to_viewers_who_have_opted_out(tmp_path: Path) -> None:
    rules = rules_in(tmp_path, 'opt_out = "anonymize"\n[fields]\npath = "hash"\nviewer = "hash"\ntitle = "keep"\n')
    assert rules.of_all_fields()["viewer"] == "hash"
    opted_out = rules.of_all_fields(is_opted_out=True)
    assert (opted_out["path"], opted_out["viewer"], opted_out["title"]) == ("hash", "drop", "drop")
    assert (opted_out["tenant"], opted_out["public_id"]) == ("keep", "keep")


def test_an_opt_out_is_ignored_unless_the_file_says_so(tmp_path: Path) -> None:
    rules = rules_in(tmp_path, '[fields]\nviewer = "keep"\n')
    assert set(rules.of_all_fields(is_opted_out=True).values()) == {Rule.KEEP}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fields", "privacy.toml: is not TOML"),
        ('presets = "strict"', '"presets" is not a setting. Use preset, opt_out or the table [fields].'),
        ('preset = "loose"', 'preset: "loose" is not "strict". Write "strict", or leave it out.'),
        ("opt_out = true", "opt_out: true is not a value. Use one of ignore, anonymize."),
        ('fields = "drop"', 'fields: "drop" is not a table. Write [fields], and a rule on each line below it.'),
        ('[fields]\nviewers = "drop"', 'fields: "viewers" is not a field. Did you mean "viewer"?'),
        ('[fields]\nviewer = "hsh"', 'fields.viewer: "hsh" is not a rule. Use one of keep, hash, drop.'),
        ('[fields]\nviewer = "template"', 'fields.viewer: "template" is not a rule. Use one of keep, hash, drop.'),
        ("[fields]\npage = []", "page: [] is not a rule. Use one of keep, strip_query, template, hash, drop."),
    ],
    ids=["TOML", "name", "preset", "opt-out", "table", "field", "rule", "rule of another field", "type"],
)
def test_an_invalid_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        rules_in(tmp_path, text)
    assert message in str(raised.value)

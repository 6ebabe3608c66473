"""Every case file has the outcome that it names (tests/protocol/cases.py describes the format)."""

import json

import pytest

from embedsink.errors import Refused
from embedsink.ingest.records import delivery_lines
from embedsink.protocol.delivery import Rejection
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from tests.protocol.cases import Case, envelopes_in, read_cases
from tests.support.envelopes import RECEIVED_AT, envelope_in
from tests.support.redaction import storable

VALID = read_cases("valid")
INVALID = read_cases("invalid")
# Reasons of the loader and of the key's scope.
REASONS_OUTSIDE_THE_PARSER = {Reason.ID_CONFLICT, Reason.ERASED, Reason.OUT_OF_SCOPE}


def rejection_in(case: Case) -> tuple[Reason, str]:
    """Return the reason and the detail of the rejected envelope or body."""
    try:
        parsed = parse(case.body, RECEIVED_AT, case.rules, ndjson=case.ndjson)
    except Refused as refusal:
        assert "accepted" not in case.expected
        return refusal.reason, str(refusal)
    assert len(parsed.accepted) == case.expected.get("accepted", 0)
    rejection: Rejection = parsed.rejected[0]
    assert rejection.index == case.expected.get("index", 0)
    return rejection.reason, rejection.detail


def test_valid_cases_are_accepted_unchanged(subtests: pytest.Subtests) -> None:
    for case in VALID:
        with subtests.test(str(case)):
            parsed = parse(case.body, RECEIVED_AT, case.rules, ndjson=case.ndjson)
            assert parsed.rejected == []
            envelopes = list(envelopes_in(case))
            assert parsed.accepted == envelopes
            assert len(parsed.accepted) == case.expected.get("accepted", len(envelopes))


def test_valid_cases_are_journaled_with_their_unknown_fields_as_extra(subtests: pytest.Subtests) -> None:
    for case in VALID:
        with subtests.test(str(case)):
            parsed = parse(case.body, RECEIVED_AT, case.rules, ndjson=case.ndjson)
            journaled = delivery_lines(storable(parsed), key_id="k_1", new_id=object).split(b"\n")[:-1]
            lines = [line for line in map(json.loads, journaled) if line["kind"] != "lost"]
            assert [envelope_in(line) for line in lines] == list(envelopes_in(case))
            if len(lines) == 1:
                assert lines[0].get("extra") == case.expected.get("extra")


def test_invalid_cases_are_rejected_with_their_reason_path_and_a_short_sentence(subtests: pytest.Subtests) -> None:
    for case in INVALID:
        with subtests.test(str(case)):
            reason, detail = rejection_in(case)
            assert reason == case.expected["reason"]
            assert detail.startswith(f"{case.expected['path']}: ")
            assert detail == case.expected.get("detail", detail)
            assert detail.endswith(".")
            assert detail.isprintable()
            assert len(detail) <= 240


def test_there_are_enough_cases() -> None:
    assert len(VALID) >= 60
    assert len(INVALID) >= 120


def test_each_case_explains_itself_in_a_sentence() -> None:
    assert [case.name for case in VALID + INVALID if not case.why.endswith((".", "?"))] == []


def test_each_reason_of_the_parser_has_a_case() -> None:
    covered = {case.expected["reason"] for case in INVALID}

    of_an_envelope = {reason for reason in Reason if reason.status is None} - REASONS_OUTSIDE_THE_PARSER
    of_a_body = {reason for reason in Reason if reason.status == 400} - {
        Reason.TWO_CREDENTIALS,
        Reason.BAD_PARAMETER,
    }
    assert covered == of_an_envelope | of_a_body | {Reason.TOO_MANY_EVENTS}


def test_each_type_of_the_catalog_has_a_valid_and_an_invalid_case() -> None:
    def types(cases: list[Case]) -> set[bytes]:
        return {name for case in cases for name in TYPES if name in case.body}

    assert types(VALID) == set(TYPES)
    assert types(INVALID) == set(TYPES)


TYPES = [
    *(b"svc:event:" + name for name in (b"ready", b"view", b"navigate", b"dashboard-loaded")),
    *(b"svc:event:" + name for name in (b"download", b"drilldown", b"ai-query", b"error")),
    *(b"svc:action:" + name for name in (b"set-color-scheme", b"set-theme", b"set-locale")),
    *(b"svc:action:" + name for name in (b"set-filter", b"navigate", b"refresh")),
]

"""Reasons are part of the wire contract: a closed list of distinct words, each with a sentence."""

import json
import re

import pytest

from embedsink.reasons import Reason

# The statuses of docs/wire.md; 416 is for readers (RFC 9110, section 14).
STATUSES = {400, 401, 403, 404, 405, 408, 409, 413, 415, 416, 422, 429, 500, 503}


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_a_distinct_sentence(reason: Reason) -> None:
    assert re.fullmatch(r"[A-Z].+[^.]\.", reason.sentence)
    assert [other for other in Reason if other.sentence == reason.sentence] == [reason]


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_one_snake_case_word_on_the_wire(reason: Reason) -> None:
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", str(reason))
    assert json.dumps(reason) == f'"{reason}"'
    assert Reason(str(reason)) is reason  # type: ignore[call-arg]
    assert reason.name == str(reason).upper()


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_has_a_known_status_or_concerns_one_envelope(reason: Reason) -> None:
    assert reason.status is None or reason.status in STATUSES

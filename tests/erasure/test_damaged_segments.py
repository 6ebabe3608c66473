"""Which lines of a damaged segment belong to a person."""

import json
from typing import Any

import pytest

from embedsink.erasure.damaged_segments import PersonLines
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy


def line(viewer: str | None, session: str | None = "s1", *, raw: Any = None, **context: Any) -> bytes:
    record = {"key_id": "k", "context": {"viewer": viewer, "session": session} | context, "raw": json.dumps(raw)}
    return json.dumps(record).encode() + b"\n"


@pytest.mark.parametrize(
    ("person", "selected"),
    [
        (Person("ann"), {0, 1, 2, 3}),
        (Person("ann", deployments=frozenset({12})), {0, 1}),
        (Person("ann", tenants=frozenset({"acme"})), {0, 2}),
        (Person("ann", deployments=frozenset({13})), set()),
    ],
)
def test_a_limited_request_selects_only_lines_in_its_scope(person: Person, selected: set[int]) -> None:
    lines = [
        line("ann", deployment=12, tenant="acme"),
        line(None, deployment=12),
        line(None, deployment=13, tenant="acme"),
        line(None),
        line(None, None, deployment=12),
    ]
    assert PersonLines.of(person, Privacy()).select(lines) == selected


def test_a_scope_in_a_rejection_may_have_any_form() -> None:
    rejected = [
        line(None, None, raw={"context": {"viewer": "ann", "deployment": value, "tenant": "acme"}})
        for value in ([12], {"id": 12}, "12", 12)
    ]
    person = Person("ann", deployments=frozenset({12}), tenants=frozenset({"acme"}))
    assert PersonLines.of(person, Privacy()).select(rejected) == {3}


@pytest.mark.parametrize("viewer", [{"id": "ann", "n": {"a": 1}}, [["ann"]]])
def test_a_viewer_in_a_rejection_may_be_nested(viewer: Any) -> None:
    rejected = [line(None, None, raw={"context": {"viewer": viewer}}), line(None, None, raw={"viewer": {"id": "anne"}})]
    assert PersonLines.of(Person("ann"), Privacy()).select(rejected) == {0}

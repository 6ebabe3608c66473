"""Internal people: the file `internal.toml`, and the mark of their deliveries."""

import time
from pathlib import Path
from typing import Any

import pytest

from embedsink.errors import Misconfigured
from embedsink.privacy.internal import InternalPeople, read_internal_people
from embedsink.privacy.redaction import Privacy
from embedsink.privacy.rules import PrivacyRules
from tests.support.envelopes import event_or_action, parse_body, view
from tests.support.redaction import redact
from tests.support.servers import running_server, wait_until
from tests.support.stores import make_folder

PEOPLE = InternalPeople(viewers=["*@example.com", "Test*bot", "a.b"], tenants=["acme-*"], deployments=[7])


def is_internal(body: Any, **options: Any) -> bool:
    return redact(Privacy(internal=PEOPLE, **options), parse_body(body)).is_internal


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ({}, False),
        ({"viewer": "ann@example.com"}, True),
        ({"viewer": "ANN@Example.COM"}, True),
        ({"viewer": "ann@example.com.evil"}, False),
        ({"viewer": "test-7-bot"}, True),
        ({"viewer": "a.b"}, True),
        ({"viewer": "axb"}, False),
        ({"viewer": "ann\n@example.com"}, True),
        ({"tenant": "acme-test"}, True),
        ({"tenant": "acme"}, False),
        ({"viewer": "acme-test"}, False),
        ({"deployment": 7}, True),
        ({"deployment": 77}, False),
    ],
    ids=map(str, range(13)),
)
def test_a_delivery_is_internal_by_its_context(context: dict[str, Any], *, expected: bool) -> None:
    assert is_internal({"context": context, "events": [view()]}) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "acb", False),
        ("ab*ba", "aba", False),
        ("*a*a*", "a", False),
        ("**", "x", True),
    ],
)
def test_a_star_means_any_text(pattern: str, text: str, *, expected: bool) -> None:
    assert InternalPeople(viewers=[pattern]).includes({"viewer": text}) == expected


def test_hostile_texts_take_linear_time() -> None:
    people = InternalPeople(viewers=["*te*st*x", "*a*a*a*a*a*b"])
    began_at = time.thread_time()
    assert not people.includes({"viewer": "test" * 16_000})
    assert not people.includes({"viewer": "a" * 64_000})
    assert time.thread_time() - began_at < 0.5


def test_a_delivery_is_internal_by_its_ready_event() -> None:
    ready = {"embedTenant": "acme-1", "mode": "signed", "surface": "app", "deploymentId": 1}
    assert is_internal([view(), event_or_action("event:ready", ready)])
    assert is_internal([event_or_action("event:ready", ready | {"embedTenant": None, "deploymentId": 7})])
    assert not is_internal([event_or_action("event:ready", ready | {"embedTenant": "other"})])


def test_hashed_viewers_are_matched_in_clear_text() -> None:
    body = {"context": {"viewer": "ann@example.com"}, "events": [view()]}
    assert is_internal(body, rules=PrivacyRules(preset="strict"), secrets=[bytes(32)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("viewers = [", "internal.toml: is not TOML"),
        ('viewer = ["a"]', '"viewer" is not a field. The fields are viewers, tenants, deployments.'),
        (
            'viewers = "a"',
            'viewers: "a" is not a list of texts that are not empty, in which * means any text. Correct it.',
        ),
        ("tenants = [1]", "tenants: 1 is not a list of texts"),
        ('deployments = ["7"]', 'deployments: "7" is not a list of integers from'),
        ('viewers = [""]', 'viewers: "" is not a list of texts that are not empty'),
        ('tenants = ["a\\u0000"]', "tenants: "),
        ("deployments = [9007199254740992]", "deployments: 9007199254740992 is not a list of integers from"),
    ],
    ids=["TOML", "name", "type", "tenant", "deployment", "empty", "NUL", "large"],
)
def test_an_invalid_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "internal.toml"
    path.write_text(text)
    with pytest.raises(Misconfigured) as raised:
        read_internal_people(path)
    assert message in str(raised.value)


def test_reports_leave_internal_people_out_unless_asked(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "data").path
    (data / "internal.toml").write_text('viewers = ["*@example.com"]\n')
    with running_server(data) as server:
        ingest, read = server.key(), server.key("read")
        for viewer, count in (("ann@example.com", 1), ("bob", 2), ("eve@example.com", 300)):
            delivery = {"context": {"deployment": 1, "viewer": viewer}, "events": [view()] * count}
            assert server.post(delivery, key=ingest).status == 202

        def counts() -> dict[str, Any]:
            rows = {
                internal: server.get(f"/api/v1/reports/views?{parameter}", key=read).json()
                for internal, parameter in [
                    ("", ""),
                    *((one, f"internal={one}") for one in ("exclude", "include", "only")),
                ]
            }
            return {
                internal: [(row["view_count"], row["viewer_count"]) for row in each] for internal, each in rows.items()
            }

        wait_until(lambda: counts()["include"] == [(303, 3)], description="loaded")
        assert counts() == {"": [(2, 1)], "exclude": [(2, 1)], "include": [(303, 3)], "only": [(301, 2)]}
        refused = server.get("/api/v1/reports/views?internal=no", key=read)
        assert (refused.status, refused.json()["reason"]) == (400, "bad_parameter")
        # The inspector shows developers their own events.
        inspected = server.get("/api/v1/inspect?since=1h", key=read).json()
        assert inspected["acceptedCount"] == 303

"""The register of requests, and the people whose deliveries it rejects."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from embedsink.erasure import register as register_module
from embedsink.erasure.erasures import Erasures
from embedsink.erasure.register import ErasureRegister
from embedsink.erasure.request import Erasure, Result
from embedsink.erasure.run import until
from embedsink.errors import Misconfigured, Unavailable
from embedsink.privacy.erased_people import ErasedPeople
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.reasons import Reason

RESULT = Result(finished_at=0, text_count=0, searched={}, found={}, searched_count=0, found_count=0)


def open_register(path: Path, rejected: list[ErasedPeople], *, block_days: int = 30) -> ErasureRegister:
    return ErasureRegister(
        path, privacy=Privacy(), block_days=block_days, certificate_days=0, on_erased_people=rejected.append
    )


async def add(register: ErasureRegister, viewer: str) -> Erasure:
    return await register.add(Person(viewer), key_id=None, deleted_user=None)


def test_a_missing_certificate_does_not_delay_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def expire() -> None:
        register = open_register(tmp_path, [], block_days=0)
        ids = [(await add(register, viewer)).id for viewer in ("ann", "bob")]
        for erasure_id in ids:
            await register.save(register[erasure_id].finished(RESULT))
        (tmp_path / f"{ids[0]}.json").unlink()
        await register.expire()
        assert [register[erasure_id].blocked is None for erasure_id in ids] == [False, True]

    asyncio.run(expire())
    [record] = caplog.records
    assert (record.message, "No such file" in record.detail) == ("erasure_not_expired", True)  # type: ignore[attr-defined]


def test_the_delay_is_the_age_of_the_oldest_pending_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure() -> None:
        register = open_register(tmp_path, [])
        assert register.delay_s() == 0
        ann, bob = [await add(register, viewer) for viewer in ("ann", "bob")]
        monkeypatch.setattr("time.time", lambda: ann.requested_at / 1_000 + 100)
        assert register.delay_s() == pytest.approx(100)
        for erasure in (ann, bob):
            await register.save(erasure.finished(RESULT))
        assert register.delay_s() == 0

    asyncio.run(measure())


def test_people_are_rejected_as_soon_as_the_salt_is_readable(tmp_path: Path) -> None:
    asyncio.run(add(open_register(tmp_path, []), "ann"))
    rejected: list[ErasedPeople] = []
    register = open_register(tmp_path, rejected)
    salt = tmp_path / "salt"
    content = salt.read_bytes()
    salt.unlink()
    with pytest.raises(Misconfigured, match="salt: is missing"):
        register.block_people()
    salt.write_bytes(content)
    register.block_people()
    assert [len(people.people) for people in rejected] == [1]


def test_concurrent_requests_keep_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_module, "PENDING_MAX", 2)

    async def add_all() -> tuple[list[Any], int]:
        register = open_register(tmp_path, [])
        adding = [add(register, viewer) for viewer in ("ann", "bob", "eve")]
        return await asyncio.gather(*adding, return_exceptions=True), len(register.pending())

    added, pending_count = asyncio.run(add_all())
    assert ([isinstance(one, Unavailable) for one in added], pending_count) == ([False, False, True], 2)


def test_a_folder_that_cannot_be_written_is_not_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "erasures"
    path.touch()
    with pytest.raises(Unavailable, match="Use another folder") as raised:
        asyncio.run(add(open_register(path, []), "ann"))
    assert raised.value.reason is Reason.STORAGE_FAILED


def test_a_request_of_a_cancelled_caller_is_registered(tmp_path: Path) -> None:
    async def cancel() -> None:
        rejected: list[ErasedPeople] = []
        register = open_register(tmp_path, rejected)
        request = asyncio.create_task(Erasures(register, cast(Any, None)).request(Person("ann"), key_id=None))
        await asyncio.sleep(0)
        request.cancel()
        await asyncio.wait({request})
        await asyncio.wait_for(until(lambda: len(rejected) == 1), 10)
        assert len(register.pending()) == 1

    asyncio.run(cancel())

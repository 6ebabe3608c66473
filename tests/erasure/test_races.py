"""Deliveries that were read before an erasure began, and would be stored afterwards."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embedsink.ingest.worker_process import IngestWorker
from embedsink.privacy.erased_people import ErasedPeople, ErasedPerson
from embedsink.transfer import quarantine
from tests.support.app import Server, open_server
from tests.support.envelopes import view


def reject_ann(server: Server) -> None:
    """Reject the deliveries of a viewer from now on."""
    salt = bytes(32)
    person = ErasedPerson(frozenset({ErasedPeople(salt).digest("ann")}))
    server.engine._reject_erased(ErasedPeople(salt, (person,)))


def test_a_body_that_the_worker_has_read_before_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_server(tmp_path) as server:
        submit = IngestWorker.submit
        began: list[bool] = []

        def begin_erasure_meanwhile(worker: IngestWorker, job: Any, on_result: Any, *, address: str) -> None:
            def on_first_result(result: Any) -> None:
                if not began:
                    began.append(True)
                    reject_ann(server)
                on_result(result)

            submit(worker, job, on_first_result, address=address)

        monkeypatch.setattr(IngestWorker, "submit", begin_erasure_meanwhile)
        large = {"context": {"viewer": "ann"}, "events": [view({"title": "x" * 500})] * 100}
        response = server.post(large, key=server.key())
        assert (response.status_code, response.json()["rejected"][0]["reason"]) == (422, "erased")
        assert began == [True]
        assert {line["kind"] for line in server.journaled()} == {"quarantined"}


def test_a_rejection_that_a_replay_has_read_before_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_server(tmp_path, segment_seal_s=0.05) as server:
        wrong = view() | {"source": "acme-embed", "type": "acme:event:view"}
        server.post({"context": {"viewer": "ann"}, "events": [wrong]}, key=server.key())
        server.engine.rules = replace(server.engine.rules, service_name="acme")
        next_batch = quarantine._next_batch
        batches: list[Any] = []

        def begin_erasure_meanwhile(*arguments: Any) -> Any:
            batches.append(next_batch(*arguments))
            if len(batches) == 1:
                reject_ann(server)
            return batches[-1]

        monkeypatch.setattr(quarantine, "_next_batch", begin_erasure_meanwhile)
        response = server.request("POST", "/api/v1/quarantine/replay", key=server.key("admin"))
        assert response.json() == {"replayed": 0, "rejected": 1, "untried": 0}
        assert batches[0].replayed == 1

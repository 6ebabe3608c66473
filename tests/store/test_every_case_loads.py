"""The store can load the line of every accepted or rejected envelope. An unreadable line would block its segment."""

from pathlib import Path
from uuid import uuid4

from embedsink.errors import Refused
from embedsink.ingest.records import body_rejection_line, delivery_lines
from embedsink.journal.segment import inspect, trailer
from embedsink.protocol.delivery import ParsedDelivery, Rejection
from embedsink.protocol.validation import parse
from embedsink.store.ledger import LoadCounts
from tests.protocol.cases import Case, read_cases
from tests.support.envelopes import RECEIVED_AT
from tests.support.redaction import storable, storable_rejection
from tests.support.stores import open_store


def outcome(case: Case) -> ParsedDelivery | Refused:
    try:
        return parse(case.body, RECEIVED_AT, case.rules, ndjson=case.ndjson)
    except Refused as refusal:
        return refusal


def line_or_lines(case: Case, outcome: ParsedDelivery | Refused) -> bytes:
    if isinstance(outcome, ParsedDelivery):
        return delivery_lines(storable(outcome), key_id="k_1", new_id=uuid4)
    rejection = Rejection(None, outcome.reason, str(outcome), case.body)
    return body_rejection_line(storable_rejection(rejection), received_at=RECEIVED_AT, key_id="k_1", new_id=uuid4)


def load(folder: Path, lines: bytes) -> LoadCounts:
    segment = folder / f"{1:012d}-00000000.ndjson"
    segment.write_bytes(lines + trailer(lines))
    store = open_store(folder / "store.duckdb")
    try:
        return store.load(inspect(segment))
    finally:
        store.close()


def test_every_case_loads_and_the_ledger_adds_up(tmp_path: Path) -> None:
    outcomes = [(case, outcome(case)) for case in read_cases("valid") + read_cases("invalid")]

    ledger = load(tmp_path, b"".join(line_or_lines(case, found) for case, found in outcomes))

    parsed = [found for _, found in outcomes if isinstance(found, ParsedDelivery)]
    rejected = sum(len(delivery.rejected) for delivery in parsed) + len(outcomes) - len(parsed)
    assert ledger.received_count == sum(len(delivery.accepted) for delivery in parsed) + rejected
    assert ledger.received_count == ledger.accepted_count + ledger.duplicate_count + ledger.quarantined_count
    # Some cases have the same id and different content.
    assert ledger.quarantined_count >= rejected

"""Export and import: the same rows in both folders, each once, and one outcome for each envelope of a file."""

import asyncio
import gzip
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas
import pytest
from pandas.testing import assert_frame_equal

from embedsink.client.http_client import HttpClient, Unreachable
from embedsink.client.notebook import open as open_folder
from embedsink.engine import Engine, now_ms
from embedsink.errors import EmbedsinkError, Unavailable
from embedsink.journal.writer import Journal, OnDurable
from embedsink.key_scope import EVERYTHING
from embedsink.protocol.delivery import Rules
from embedsink.protocol.validation import parse
from embedsink.reasons import Reason
from embedsink.settings import Settings
from embedsink.store.snapshot_reader import open_snapshot
from embedsink.transfer import bulk_import
from embedsink.transfer.bulk_import import ImportCounts, import_to_folder, import_to_server
from embedsink.transfer.export import export_csv, export_ndjson, export_parquet
from embedsink.transfer.import_file import DELIVERY_BYTES_MAX, EVENTS_MAX, Delivery, read_deliveries, read_lines
from tests.protocol.cases import read_cases
from tests.support.servers import free_port, offending_rows, running_server, wait_until
from tests.support.stores import make_folder

YEAR_AGO_MS = 1_763_596_800_000
HOUR_MS = 3_600_000
KEY = "es_ingest_dMPhOTQ7djsouXDOGie3VM3F4NE4pCrJ5txnGx5UEDJ0Zp49n"


def view(**fields: Any) -> dict[str, Any]:
    return {
        "source": "svc-embed",
        "direction": "event",
        "type": "svc:event:view",
        "payload": {"surface": "dashboard", "path": "/sales"},
        "timestamp": YEAR_AGO_MS,
        "surface": "dashboard",
    } | fields


def as_line(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def deliveries(values: Iterable[object], *, is_remote: bool = False) -> list[Delivery]:
    lines = ((number, as_line(value)) for number, value in enumerate(values, start=1))
    return list(read_deliveries(lines, Rules(), is_remote=is_remote))


def import_into(data: Path, values: Iterable[object], **settings: Any) -> ImportCounts:
    async def run() -> ImportCounts:
        counts = ImportCounts()
        async with Engine(make_folder(data), Settings(**settings)) as engine:
            await import_to_folder(engine, deliveries(values), counts)
        return counts

    return asyncio.run(run())


def exported(data: Path, **variables: str) -> list[bytes]:
    file = data.parent / "exported.ndjson"
    with (
        open_snapshot(data / "analytics.duckdb", {**EVERYTHING.variables(), **variables}) as reader,
        file.open("wb") as opened,
    ):
        opened.writelines(export_ndjson(reader))
    return file.read_bytes().splitlines()


def rows(data: Path, table: str, *, without: str = "ingest_seq, key_id") -> pandas.DataFrame:
    return open_folder(data).sql(f"select * exclude ({without}) from {table} order by {table}_id")


def test_an_export_imports_as_the_same_rows(tmp_path: Path) -> None:
    clocks: list[dict[str, Any]] = [{}, {"sentAt": YEAR_AGO_MS + 0.25}, {"sentAt": YEAR_AGO_MS - 2 * HOUR_MS}]
    clocks += [{"sentAt": 253_402_300_799_998.97}, {"sentAt": -62_135_596_799_999.5}]
    contexts: list[dict[str, Any]] = [
        {},
        {"deployment": 12, "session": "s", "viewer": 'u "1"', "tenant": "ac\x1bme", "page": "https://a.example.com/ü"}
        | {"vendor": "looker"},
    ]
    bodies = [json.loads(case.body) for case in read_cases("valid") if not case.ndjson and case.rules == Rules()]
    envelopes = [
        body_envelope for body in bodies if isinstance(body, dict) and "source" in body for body_envelope in [body]
    ]
    values = [
        {"receivedAt": YEAR_AGO_MS + index, "context": context, "events": [envelope | {"id": None}]} | clock
        for index, envelope in enumerate(envelopes)
        for context in contexts
        for clock in clocks
    ]
    counts = import_into(tmp_path / "one", values)
    assert (counts.accepted, counts.rejected, counts.messages) == (len(values), 0, [])
    assert len(values) > 400

    again = import_into(tmp_path / "two", exported(tmp_path / "one"))

    assert (again.accepted, again.rejected) == (len(values), 0)
    for table in ("event", "action"):
        assert len(rows(tmp_path / "one", table)) > 50
        assert_frame_equal(rows(tmp_path / "one", table), rows(tmp_path / "two", table))


def test_an_export_uses_the_service_name(tmp_path: Path) -> None:
    import_into(tmp_path / "data", [view()])
    [line] = exported(tmp_path / "data", service_name="acme")
    [envelope] = json.loads(line)["events"]
    assert (envelope["source"], envelope["type"]) == ("acme-embed", "acme:event:view")


def test_csv_and_parquet_exports_have_the_rows_of_the_event_table(tmp_path: Path) -> None:
    import_into(tmp_path / "data", [view(), view(payload={"surface": "app", "path": "=1+1"}, surface="app")])
    with open_snapshot(tmp_path / "data" / "analytics.duckdb", EVERYTHING.variables()) as reader:
        with (tmp_path / "events.csv").open("wb") as file:
            file.writelines(export_csv(reader))
        export_parquet(reader, tmp_path / "events.parquet")
    table = rows(tmp_path / "data", "event", without="ingest_seq")
    csv = pandas.read_csv(tmp_path / "events.csv")
    assert sorted(csv["path"]) == ["'=1+1", "/sales"]
    assert set(csv["event_id"]) == set(table["event_id"].astype(str))
    parquet = open_folder(tmp_path / "data").sql(f"select * from '{tmp_path}/events.parquet' order by event_id")
    assert_frame_equal(parquet.drop(columns="ingest_seq"), table)


def test_a_file_imported_twice_counts_once(tmp_path: Path) -> None:
    values = [view(), [view(), view()], {"events": [view()]}, view()]
    import_into(tmp_path / "data", values)
    import_into(tmp_path / "data", values)
    assert len(rows(tmp_path / "data", "event")) == 5


def test_each_invalid_envelope_of_a_file_is_quarantined_once(tmp_path: Path) -> None:
    bad = view(surface="moon")
    values: list[object] = [view(), b"{oops", [bad, bad, 7, 7], bad, bad, b'{"events": null}', [], 7, b"{oops"]
    first = import_into(tmp_path / "data", values)
    first_ledger = ledger(tmp_path / "data")
    assert first.rejected == first_ledger["quarantined_count"] == 11
    again = import_into(tmp_path / "data", values)
    assert (again.accepted, again.rejected) == (first.accepted, first.rejected)
    assert ledger(tmp_path / "data") == {**first_ledger, "received_count": 24, "duplicate_count": 12}
    # The same text on another line is a separate rejection, even within one load.
    import_into(tmp_path / "data", [*values, b"{oops"])
    assert ledger(tmp_path / "data")["quarantined_count"] == 12
    assert len(open_folder(tmp_path / "data").sql("select distinct quarantine_id from quarantine")) == 12
    assert offending_rows(tmp_path / "data") == {}


@pytest.mark.parametrize("later_ms", [0, 9 * 24 * HOUR_MS])
def test_a_file_imported_again_weeks_later_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_ms: int
) -> None:
    action = {"source": "svc-embed", "direction": "action", "type": "svc:action:refresh", "payload": {}}
    losing = {"lost": {"queue_overflow": 3}, "events": [view(), view(id=str(uuid4()))]}
    values = [view(), action | {"timestamp": YEAR_AGO_MS}, losing, {"lost": {"quota": 2}, "events": []}]
    values += [
        {"lost": {"quota": 4}, "events": [7]},
        view(surface="moon"),
        {"receivedAt": YEAR_AGO_MS, "events": [view()]},
    ]
    for moved_ms in (-later_ms, 0):
        monkeypatch.setattr(bulk_import, "now_ms", lambda moved_ms=moved_ms: now_ms() + moved_ms)
        import_into(tmp_path / "data", [*values, b"{oops" + b"x" * 20_000])
    counts = {table: len(rows(tmp_path / "data", table)) for table in ("event", "action", "quarantine")}
    assert counts == {"event": 4, "action": 1, "quarantine": 3}
    lost = open_folder(tmp_path / "data").sql(
        "select reason, sum(lost_count)::bigint from loss group by all order by 1"
    )
    assert lost.to_numpy().tolist() == [["queue_overflow", 3], ["quota", 6]]
    assert offending_rows(tmp_path / "data") == {}


def test_a_split_delivery_quarantines_equal_envelopes_separately(tmp_path: Path) -> None:
    for _ in range(2):
        import_into(tmp_path / "data", [[7] * 7], events_max=2)
        assert ledger(tmp_path / "data")["quarantined_count"] == 7


def ledger(data: Path) -> dict[str, int]:
    counts = "sum(received_count), sum(accepted_count), sum(duplicate_count), sum(quarantined_count)"
    names = ("received_count", "accepted_count", "duplicate_count", "quarantined_count")
    [row] = open_folder(data).sql(f"select {counts} from loaded_segment").to_numpy().tolist()
    return dict(zip(names, map(int, row), strict=True))


def test_gzip_is_detected_by_content(tmp_path: Path) -> None:
    content = b"\n".join(map(as_line, [view(), b"{oops", view()]))
    file = tmp_path / "in.ndjson"
    for written in (gzip.compress(content), content):
        file.write_bytes(written)
        with file.open("rb") as opened:
            assert [number for number, _ in read_lines(opened, bytes_max=1_000)] == [1, 2, 3]


@pytest.mark.parametrize("cut", [-1, -9, 200, 5])
def test_a_damaged_gzip_file_is_reported_with_the_line(tmp_path: Path, cut: int) -> None:
    lines = [as_line(view(id=str(uuid4()))) for _ in range(500)]
    (tmp_path / "in.gz").write_bytes(gzip.compress(b"\n".join(lines))[:cut])
    with (
        pytest.raises(EmbedsinkError, match=r"^line [\d,]+: the gzip file is damaged or cut off here"),
        (tmp_path / "in.gz").open("rb") as opened,
    ):
        list(read_lines(opened, bytes_max=1_000))


def test_an_invalid_line_is_quarantined_with_its_number_and_the_others_are_accepted(tmp_path: Path) -> None:
    values = [view(), b"{oops", [view(), view(surface="moon")], b'{"events": null}', b"7", b'{"a":1,"a":1}', view()]
    counts = import_into(tmp_path / "data", values)
    assert (counts.accepted, counts.rejected, counts.unsent) == (3, 5, 0)
    assert [reason.partition(": body")[0].split(":")[0] for reason in counts.messages] == [
        "line 2",
        "line 3",
        "line 4",
        "line 5",
        "line 6",
    ]
    texts = open_folder(tmp_path / "data").sql("select raw from quarantine")["raw"].tolist()
    assert "{oops" in texts
    assert len(texts) == 5


def test_a_line_beyond_the_limit_is_reported_and_not_stored(tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_bytes(as_line(view()) + b"\n" + b'"' + b"x" * 5_000 + b'"\n\n' + as_line(view()))

    async def run() -> ImportCounts:
        counts = ImportCounts()
        async with Engine(make_folder(tmp_path / "data"), Settings(body_bytes_max=2_000)) as engine:
            with file.open("rb") as opened:
                lines = read_lines(opened, bytes_max=2_000)
                await import_to_folder(engine, read_deliveries(lines, engine.rules, is_remote=False), counts)
        return counts

    counts = asyncio.run(run())
    assert (counts.accepted, counts.rejected, counts.unsent) == (2, 0, 1)
    assert counts.messages == [
        "line 2: body_too_large: is longer than 2,000 bytes (EMBEDSINK_BODY_BYTES_MAX). Split it."
    ]


def test_blank_lines_are_counted_but_not_read_and_long_lines_are_cut(tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_bytes(b"1\n\n" + b" " * 99 + b"x\n2")
    with file.open("rb") as opened:
        lines = list(read_lines(opened, bytes_max=10))
    assert [(number, len(line)) for number, line in lines] == [(1, 1), (3, 11), (4, 1)]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_line_endings_do_not_count_towards_the_limit(tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "in.ndjson"
    file.write_bytes(b"".join(b"x" * count + end for count in (9, 10, 11)) if end else b"x" * 10)
    with file.open("rb") as opened:
        lengths = [len(line) for _, line in read_lines(opened, bytes_max=10)]
    assert lengths == ([9, 10, 11] if end else [10])


def test_received_at_of_a_line_is_retained(tmp_path: Path) -> None:
    import_into(tmp_path / "data", [{"receivedAt": YEAR_AGO_MS, "events": [view()]}])
    assert rows(tmp_path / "data", "event")["received_at"].tolist() == [
        pandas.Timestamp(YEAR_AGO_MS, unit="ms", tz="UTC")
    ]


def test_sent_at_without_received_at_does_not_shift_an_event(tmp_path: Path) -> None:
    import_into(tmp_path / "data", [{"sentAt": YEAR_AGO_MS, "events": [view()]}])
    assert rows(tmp_path / "data", "event")["occurred_at"].tolist() == [
        pandas.Timestamp(YEAR_AGO_MS, unit="ms", tz="UTC")
    ]


@pytest.mark.parametrize("received_at", ["soon", 1.5, True, 4 * YEAR_AGO_MS])
def test_a_line_with_an_invalid_received_at_is_not_imported(tmp_path: Path, received_at: object) -> None:
    counts = import_into(tmp_path / "data", [{"receivedAt": received_at, "events": [view(), view()]}, view()])
    assert (counts.accepted, counts.rejected, counts.unsent) == (1, 0, 2)
    message = f"receivedAt: {json.dumps(received_at)} is not a past time in epoch milliseconds. Correct the file."
    assert counts.messages == [f"line 1: bad_field: {message}"]


def test_a_line_with_an_invalid_received_at_is_not_sent_to_a_server() -> None:
    counts = ImportCounts()
    invalid = deliveries([{"receivedAt": "abc", "events": [view()]}] * 2, is_remote=True)
    import_to_server(HttpClient(f"http://127.0.0.1:{free_port()}", KEY), invalid, counts, retry_timeout_s=0)
    assert (counts.accepted, counts.rejected, counts.unsent) == (0, 0, 2)


def test_neighbours_with_the_same_context_share_a_delivery() -> None:
    first, second = {"context": {"session": "1"}, "events": [view()]}, {"context": {"session": "2"}, "events": [view()]}
    assert [len(delivery.events) for delivery in deliveries([first, first, second, first])] == [2, 1, 1]
    assert [len(delivery.events) for delivery in deliveries([view()] * (EVENTS_MAX + 1))] == [EVENTS_MAX, 1]
    alike = [{"context": {"deployment": value}, "events": [view()]} for value in (1, True, 1, 1)]
    assert [(delivery.line_numbers, delivery.shared["context"]["deployment"]) for delivery in deliveries(alike)] == [
        ([1], 1),
        ([2], True),
        ([3, 4], 1),
    ]
    large = view(payload={"surface": "dashboard", "path": "x" * (DELIVERY_BYTES_MAX // 2)})
    assert [len(delivery.events) for delivery in deliveries([large, large])] == [1, 1]


def test_losses_are_reported_once() -> None:
    losing = {"lost": {"queue_overflow": 3}, "events": [view(), view()]}
    sent_deliveries = deliveries([losing, losing])
    assert [delivery.shared for delivery in sent_deliveries] == [{"lost": {"queue_overflow": 3}}] * 2
    assert [half.shared for half in sent_deliveries[0].halves()] == [{"lost": {"queue_overflow": 3}}, {}]


def test_the_key_in_a_delivery_is_not_forwarded() -> None:
    losing = {"key": "es_ingest_x", "receivedAt": YEAR_AGO_MS, "lost": {"quota": 2}, "events": []}
    with_event, without_events = deliveries([{"key": "es_ingest_x", "events": [view()]}, losing])
    assert b"es_ingest" not in with_event.body + without_events.body
    assert json.loads(without_events.body) == {"lost": {"quota": 2}, "events": []}
    assert without_events.received_at == YEAR_AGO_MS
    [invalid] = deliveries([{"key": "es_ingest_x", "events": 7}])
    assert json.loads(invalid.body) == {"events": 7}


def test_a_delivery_without_events_or_losses_is_rejected_alone(tmp_path: Path) -> None:
    counts = import_into(tmp_path / "data", [{"events": [view()]}, {"key": "x", "events": []}, {"events": [view()]}])
    assert (counts.accepted, counts.rejected) == (2, 1)
    assert counts.messages[0].startswith("line 2: empty: ")


def test_a_server_receives_the_skew_of_the_clock_and_not_the_age_of_the_file() -> None:
    skewed = {"receivedAt": YEAR_AGO_MS + HOUR_MS, "sentAt": YEAR_AGO_MS, "events": [view()]}
    right = {"receivedAt": YEAR_AGO_MS + 100, "sentAt": YEAR_AGO_MS, "events": [view()]}
    bodies = [json.loads(delivery.body) for delivery in deliveries([skewed, right], is_remote=True)]
    assert [body.keys() & {"receivedAt", "sentAt"} for body in bodies] == [{"sentAt"}, set()]
    assert time.time() * 1_000 - bodies[0]["sentAt"] == pytest.approx(HOUR_MS, abs=10_000)


@pytest.mark.parametrize("invalid", ["yesterday", True, [7]])
def test_an_invalid_clock_is_sent_unchanged_so_that_the_server_rejects_it(invalid: object) -> None:
    line = {"receivedAt": YEAR_AGO_MS, "sentAt": invalid, "events": [view()]}
    [delivery] = deliveries([line], is_remote=True)
    assert json.loads(delivery.body)["sentAt"] == invalid
    assert [rejection.reason for rejection in parse(delivery.body, YEAR_AGO_MS).rejected] == ["bad_field"]


def test_the_first_of_two_lines_with_an_id_wins_after_a_retry_of_its_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_import, "WRITE_BYTES_MAX", 1)
    submit, full = Journal.submit, iter([True])

    def submit_later(journal: Journal, lines: bytes, on_durable: OnDurable) -> None:
        if next(full, False):
            raise Unavailable(Reason.STORAGE_LOW)
        submit(journal, lines, on_durable)

    monkeypatch.setattr(Journal, "submit", submit_later)
    named = {"id": "00000000-0000-4000-8000-000000000001"}
    one_id = [view(**named, payload={"surface": "dashboard", "path": f"/{index}"}) for index in range(3)]
    lines = [{"context": {"session": f"{index}"}, "events": [envelope]} for index, envelope in enumerate(one_id)]
    counts = import_into(tmp_path / "data", lines)
    assert counts.accepted == 3
    assert rows(tmp_path / "data", "event")["path"].tolist() == ["/0"]


def test_counts_include_durable_writes_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_import, "RETRY_TIMEOUT_S", 0)
    monkeypatch.setattr(bulk_import, "WRITE_BYTES_MAX", 1)
    submit, left = Journal.submit, iter(range(2))

    def submit_two(journal: Journal, lines: bytes, on_durable: OnDurable) -> None:
        if next(left, None) is None:
            raise Unavailable(Reason.STORAGE_LOW)
        submit(journal, lines, on_durable)

    async def run() -> None:
        async with Engine(make_folder(tmp_path / "data"), Settings()) as engine:
            lines = [{"context": {"session": f"{index}"}, "events": [view()]} for index in range(5)]
            with monkeypatch.context() as patch:
                patch.setattr(Journal, "submit", submit_two)
                with pytest.raises(Unavailable):
                    await import_to_folder(engine, deliveries(lines), counts)

    counts = ImportCounts()
    asyncio.run(run())
    assert (counts.accepted, counts.rejected, counts.unsent) == (2, 0, 0)
    assert len(rows(tmp_path / "data", "event")) == 2


@pytest.mark.server
def test_an_import_through_a_server_retries_when_the_rate_limit_is_reached(tmp_path: Path) -> None:
    values = [view() for _ in range(700)] + [b"{oops", view(surface="moon")]
    values += [{"context": {"deployment": 2}, "events": [view()]}]
    with running_server(tmp_path / "data", EMBEDSINK_RATE_EVENTS_PER_S="300") as server:
        remote = HttpClient(server.url, server.key("ingest", deployments=[1]))
        counts = ImportCounts()
        started_at = time.monotonic()
        import_to_server(remote, deliveries(values, is_remote=True), counts)
        assert time.monotonic() - started_at > 0.5  # The rate limit delayed the import.
        assert (counts.accepted, counts.rejected, counts.unsent) == (700, 2, 1)
        assert [reason.split(": ")[:2] for reason in counts.messages] == [
            ["line 701", "not_json"],
            ["line 702", "bad_field"],
            ["line 703", "out_of_scope"],
        ]
        assert server.stop() == 0
    assert len(rows(tmp_path / "data", "event")) == 700


@pytest.mark.server
def test_a_delivery_that_is_too_large_for_the_server_is_split(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", EMBEDSINK_EVENTS_MAX="10") as server:
        counts = ImportCounts()
        import_to_server(
            HttpClient(server.url, server.key("ingest")), deliveries([view()] * 35, is_remote=True), counts
        )
        assert (counts.accepted, counts.rejected, counts.unsent) == (35, 0, 0)
        key = server.key("read")
        wait_until(
            lambda: b"35" in server.get("/api/v1/reports/views.csv", key=key).body, description="all 35 are visible"
        )


def test_an_unreachable_server_is_reported_with_the_line() -> None:
    remote = HttpClient(f"http://127.0.0.1:{free_port()}", KEY)
    with pytest.raises(
        Unreachable, match=r"line 1: http://127.0.0.1:\d+: does not answer .*Import the whole file again"
    ):
        import_to_server(remote, deliveries([view()], is_remote=True), ImportCounts(), retry_timeout_s=0)

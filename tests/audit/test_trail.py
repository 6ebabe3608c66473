"""The files of the audit trail: the chain, crashes, a full disk, retention and tampering."""

import contextlib
import errno
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest

import embedsink.audit.trail
from embedsink.audit.changes import record_keys
from embedsink.audit.entry import ENTRY_BYTES_MAX, Action, Entry, Via, encode
from embedsink.audit.trail import AuditTrail, audit_files
from embedsink.audit.verify import verify_trail
from embedsink.auth.key_store import KeyStore
from embedsink.auth.keys import KeyKind
from embedsink.auth.tokens import new_token
from embedsink.backup.source import open_other_files
from embedsink.data_folder import DataFolder
from embedsink.errors import Unavailable
from embedsink.reports.audit_entries import AuditCursor, AuditFilter, newest_entries
from embedsink.store.audit_reader import open_audit_reader
from tests.support.disks import mounted
from tests.support.servers import wait_until

TODAY = datetime.now(UTC).date()


def login(actor: str = "k_1", **fields: object) -> Entry:
    return Entry(action=Action.LOGIN, actor=actor, via=Via.PAGE, **fields)  # type: ignore[arg-type]


def trail_in(path: Path, *, entries: int = 0) -> AuditTrail:
    path.mkdir(exist_ok=True)
    trail = AuditTrail(DataFolder(path))
    if entries:
        trail.append([login(detail={"index": index}) for index in range(entries)])
    return trail


def lines_of(trail: AuditTrail) -> list[bytes]:
    return [line for path in audit_files(trail.folder) for line in path.read_bytes().splitlines()]


def problems(trail: AuditTrail) -> list[str]:
    return verify_trail(trail.folder, today=TODAY).problems


def move_to_day(trail: AuditTrail, day: date) -> None:
    """Rename the newest file, as if it had been written on another day."""
    path = audit_files(trail.folder)[-1]
    path.rename(path.with_name(f"{day}.ndjson"))


def append_some(path: Path, count: int) -> None:
    trail = AuditTrail(DataFolder(path))
    for _ in range(count):
        trail.append([login(f"process {os.getpid()}")])


def test_each_line_has_the_digest_of_the_line_before_also_across_days(tmp_path: Path) -> None:
    trail = trail_in(tmp_path, entries=2)
    move_to_day(trail, TODAY - timedelta(days=1))
    trail.append([login()])
    assert [path.stem for path in audit_files(trail.folder)] == [str(TODAY - timedelta(days=1)), str(TODAY)]
    entries = [json.loads(line) for line in lines_of(trail)]
    assert [entry["number"] for entry in entries] == [1, 2, 3]
    digests = [sha256(line).hexdigest() for line in lines_of(trail)]
    assert [entry["previous"] for entry in entries] == [None, *digests[:-1]]
    result = verify_trail(trail.folder, today=TODAY)
    assert (result.entry_count, result.last_number, result.last_digest) == (3, 3, digests[-1])
    assert (trail.folder.stat().st_mode & 0o777, audit_files(trail.folder)[0].stat().st_mode & 0o777) == (0o750, 0o640)


def test_a_clock_that_was_set_back_continues_the_newest_file(tmp_path: Path) -> None:
    trail = trail_in(tmp_path, entries=1)
    move_to_day(trail, TODAY + timedelta(days=1))
    trail.append([login()])
    assert len(audit_files(trail.folder)) == 1
    assert problems(trail) == []
    move_to_day(trail, TODAY + timedelta(days=9))
    assert problems(trail) == [f"{TODAY + timedelta(days=9)}.ndjson: is from the future. Correct the clock."]


def test_entries_in_the_file_of_a_later_day_are_found(tmp_path: Path) -> None:
    trail = trail_in(tmp_path, entries=1)
    move_to_day(trail, TODAY + timedelta(days=90))
    trail.append([login()])
    until = AuditFilter.parse({"until": (TODAY + timedelta(days=1)).isoformat()})
    assert until.files(trail.folder) == audit_files(trail.folder)
    since = AuditFilter.parse({"since": (TODAY + timedelta(days=91)).isoformat()})
    assert since.files(trail.folder) == []


def test_a_retention_during_the_verification_is_no_tampering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trail = trail_in(tmp_path)
    for days in (40, 39, 38, 1):
        trail.append([login()])
        move_to_day(trail, TODAY - timedelta(days=days))
    listings = [audit_files(trail.folder)]
    assert trail.expire(30, today=TODAY) == 3
    listings += [audit_files(trail.folder)] * 3
    listings[0][1].write_bytes(lines_of(trail)[0])  # read before it was deleted
    monkeypatch.setattr("embedsink.audit.verify.audit_files", lambda _: listings.pop(0))
    assert problems(trail) == []
    assert listings == []


@pytest.mark.parametrize("number", [True, 0, -1, "1", None])
def test_a_line_with_an_invalid_number_is_no_entry(tmp_path: Path, number: object) -> None:
    trail = trail_in(tmp_path, entries=1)
    with audit_files(trail.folder)[0].open("ab") as file:
        file.write(json.dumps({"number": number}).encode() + b"\n")
    assert verify_trail(trail.folder, today=TODAY).incomplete_count == 1


def test_concurrent_processes_extend_one_chain(tmp_path: Path) -> None:
    trail = trail_in(tmp_path)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=append_some, args=(tmp_path, 40)) for _ in range(3)]
    for process in processes:
        process.start()
    append_some(tmp_path, 40)
    for process in processes:
        process.join()
    result = verify_trail(trail.folder, today=TODAY)
    assert (result.entry_count, result.last_number, result.problems) == (160, 160, [])


@pytest.mark.parametrize("torn", [b'{"number":3,"at":17', b"{", b"\xff\0"], ids=range(3))
def test_an_incomplete_line_is_terminated_and_recorded(tmp_path: Path, torn: bytes) -> None:
    trail = trail_in(tmp_path, entries=2)
    path = audit_files(trail.folder)[0]
    with path.open("ab") as file:
        file.write(torn)
    assert problems(trail) == []
    trail_in(tmp_path).append([login("k_2")])
    assert [json.loads(line)["action"] for line in lines_of(trail)[3:]] == ["audit_recovered", "login"]
    assert json.loads(lines_of(trail)[3])["detail"]["sha256"] == sha256(torn).hexdigest()
    assert problems(trail) == []
    with open_audit_reader(audit_files(trail.folder), {"row_limit": 9}) as reader:
        assert [row["number"] for row in reader.dicts("audit_entry_newest")] == [4, 3, 2, 1]


def test_a_line_without_its_line_break_is_an_entry(tmp_path: Path) -> None:
    trail = trail_in(tmp_path, entries=2)
    path = audit_files(trail.folder)[0]
    path.write_bytes(path.read_bytes()[:-1])
    trail_in(tmp_path).append([login("k_2")])
    assert [json.loads(line)["number"] for line in lines_of(trail)] == [1, 2, 3]
    assert problems(trail) == []


def test_kills_during_appends_lose_no_acknowledged_entry(tmp_path: Path) -> None:
    trail = trail_in(tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.audit.test_trail import AuditTrail, DataFolder, login\n"
        "trail = AuditTrail(DataFolder(Path(sys.argv[1])))\n"
        "for index in range(10**9):\n"
        "    trail.append([login(detail={'text': 'x' * (index % 200)})]); print(index, flush=True)\n"
    )
    acknowledged = 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(random.uniform(0, 0.2))
            process.send_signal(signal.SIGKILL)
            acknowledged += 1 + len([line for line in process.stdout.read().splitlines() if line])
    trail.append([login("last")])
    result = verify_trail(trail.folder, today=TODAY)
    assert result.problems == []
    assert result.entry_count >= acknowledged + 1


def tampered(trail: AuditTrail, change: str) -> None:
    paths = audit_files(trail.folder)
    lines = paths[1].read_bytes().splitlines(keepends=True)
    if change == "changed":
        lines[1] = lines[1].replace(b"k_1", b"k_2")
    elif change == "removed":
        del lines[1]
    elif change == "swapped":
        lines[0], lines[1] = lines[1], lines[0]
    elif change == "added":
        lines.insert(1, lines[0])
    elif change == "garbled":
        lines[1] = b"x" * 20 + b"\n"
    elif change == "day removed":
        paths[1].unlink()
        return
    elif change == "first day removed":
        paths[0].unlink()
        return
    elif change == "all removed":
        (trail.folder / "recorded-keys.json").write_text("{}")
        for path in paths:
            path.unlink()
        return
    paths[1].write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    "change", ["changed", "removed", "swapped", "added", "garbled", "day removed", "first day removed", "all removed"]
)
def test_tampering_is_detected(tmp_path: Path, change: str) -> None:
    trail = trail_in(tmp_path)
    for age in (2, 1, 0):
        trail.append([login(), login(), login()])
        move_to_day(trail, TODAY - timedelta(days=age))
    assert problems(trail) == []
    tampered(trail, change)
    assert problems(trail) != []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"{'x' * 222} {new_token(KeyKind.ADMIN)}", "x es_admin_…"),
        ("\x0eyJhbGciOiJub25lIn0.a.b", "\x0eyJhbGciOiJub25lIn0.a.b"),
    ],
    ids=["key at the limit", "escape"],
)
def test_texts_of_readers_leave_no_key_and_break_no_line(tmp_path: Path, text: str, kept: str) -> None:
    trail = trail_in(tmp_path)
    trail.append([replace(login(), actor_label=text, detail={"parameters": {"tenant": text}})])
    entry = json.loads(lines_of(trail)[-1])
    for stored in (entry["actor_label"], entry["detail"]["parameters"]["tenant"]):
        assert kept in stored
        assert text[-20:] not in stored or kept == text


def test_only_whole_old_days_expire_and_an_entry_records_it(tmp_path: Path) -> None:
    trail = trail_in(tmp_path)
    for age in (402, 401, 400, 1):
        trail.append([login()])
        move_to_day(trail, TODAY - timedelta(days=age))
    assert trail.expire(400, today=TODAY) == 2
    assert trail.expire(400, today=TODAY) == 0
    ages = [(TODAY - date.fromisoformat(path.stem)).days for path in audit_files(trail.folder)]
    assert ages == [400, 1, 0]
    entry = json.loads(lines_of(trail)[-1])
    assert (entry["action"], entry["count"], entry["detail"]["retention_days"]) == ("audit_expired", 2, 400)
    assert problems(trail) == []


def test_a_removal_beyond_an_expiry_is_detected(tmp_path: Path) -> None:
    trail = trail_in(tmp_path)
    for age in (402, 3, 2, 1):
        trail.append([login()])
        move_to_day(trail, TODAY - timedelta(days=age))
    trail.expire(400, today=TODAY)
    assert problems(trail) == []
    for path in audit_files(trail.folder)[:1]:
        path.unlink()
    assert problems(trail) != []
    # A later expiry does not hide it, and neither does an entry with the same word.
    trail.append([replace(login(), detail={"parameters": {"action": "audit_expired"}})])
    assert trail.expire(1, today=TODAY) == 1
    assert "were missing" in problems(trail)[0]


@pytest.mark.parametrize(
    "detail", [{"missing": 5}, {"missing": ["a"]}, {"first_number_left": "x"}, ["first_number_left"], None]
)
def test_a_tampered_expiry_is_reported(tmp_path: Path, detail: object) -> None:
    trail = trail_in(tmp_path)
    for age in (402, 2, 1):
        trail.append([login()])
        move_to_day(trail, TODAY - timedelta(days=age))
    trail.expire(400, today=TODAY)
    trail.append([login()])
    newest = audit_files(trail.folder)[-1]
    entries = [json.loads(line) for line in newest.read_bytes().splitlines()]
    entries[-2]["detail"] = detail
    newest.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    assert problems(trail) != []
    assert trail.expire(1, today=TODAY) == 1


def test_the_newest_day_never_expires(tmp_path: Path) -> None:
    trail = trail_in(tmp_path, entries=1)
    move_to_day(trail, TODAY - timedelta(days=999))
    assert trail.expire(1, today=TODAY) == 0


def test_a_full_disk_stores_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", mebibytes=1) as disk:
        trail = trail_in(disk / "data", entries=1)
        with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(b"x" * 4096):
                pass
        batch = [login(detail={"text": "x" * 200}) for _ in range(100)]
        with pytest.raises(Unavailable, match="No space left on device") as caught:
            trail.append(batch)
        assert caught.value.reason == "storage_low"
        assert problems(trail) == []
        (disk / "filler").unlink()
        trail.append([login()])
        assert problems(trail) == []
        assert verify_trail(trail.folder, today=TODAY).incomplete_count == 0


def test_entries_are_synced_before_they_are_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda opened: synced.append(str(Path(f"/proc/self/fd/{opened}").readlink())))
    monkeypatch.setattr(embedsink.audit.trail, "sync_folder", lambda folder: synced.append(str(folder)))
    trail = trail_in(tmp_path, entries=3)
    assert synced == [str(trail.folder), str(audit_files(trail.folder)[0])]  # the new name, then the content
    trail.append([login(), login()])
    assert synced[2:] == [str(audit_files(trail.folder)[0])]


def test_after_a_failed_sync_the_entries_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trail = trail_in(tmp_path, entries=1)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(Unavailable, match="Input/output error") as caught:
            trail.append([login()])
    assert caught.value.reason == "storage_failed"
    trail.append([login()])
    assert [json.loads(line)["number"] for line in lines_of(trail)] == [1, 2]
    assert problems(trail) == []


def test_an_entry_has_a_maximum_size_and_no_secret() -> None:
    key = "es_read_" + "a" * 49
    detail = {f"name {index}": "\x01" * 999 for index in range(99)}
    line = encode(login("a" * 999, target=f"{key}\0\ud800", detail=detail), number=1, previous=None)
    assert len(line) <= ENTRY_BYTES_MAX
    entry = json.loads(line)
    assert key not in entry["target"]
    assert "\0" not in entry["target"]
    assert list(entry["detail"]) == ["omitted_bytes"]


def test_pages_list_every_entry_once_the_newest_first(tmp_path: Path) -> None:
    trail = trail_in(tmp_path)
    for age in range(12, -1, -1):
        trail.append([login(f"k_{age % 2}"), login(f"k_{age % 2}")])
        move_to_day(trail, TODAY - timedelta(days=age))
    selected = AuditFilter.parse({"actor": "k_1"})
    files = selected.files(trail.folder)
    numbers: list[int] = []
    cursor = None
    while True:
        with open_audit_reader(files, selected.variables()) as reader:
            rows, following = newest_entries(reader, files, limit=5, cursor=cursor)
        numbers += [row["number"] for row in rows]
        cursor = AuditCursor.parse(str(following)) if following else None
        if cursor is None:
            break
    assert numbers == [24, 23, 20, 19, 16, 15, 12, 11, 8, 7, 4, 3]


def test_files_that_root_creates_belong_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(tmp_path, 12_345, 12_345)
    trail = trail_in(tmp_path, entries=1)
    record_keys(DataFolder(tmp_path), [])
    record_keys(DataFolder(tmp_path), [KeyStore(tmp_path / "keys.json").create(KeyKind.READ, now=time.time())[0]])
    paths = [tmp_path / "audit.lock", trail.folder, *trail.folder.iterdir()]
    assert len(paths) == 4
    assert {path.stat().st_uid for path in paths} == {12_345}


def test_a_backup_has_no_line_that_is_being_written(tmp_path: Path) -> None:
    trail = trail_in(tmp_path, entries=2)
    path = audit_files(trail.folder)[0]
    complete = path.read_bytes()
    path.write_bytes(complete + b'{"number":3,')
    files = {name: file.read() for name, file in open_other_files(DataFolder(tmp_path))}
    assert files == {f"audit/{path.name}": complete}


def test_a_damaged_trail_can_still_be_read(tmp_path: Path) -> None:
    trail = trail_in(tmp_path, entries=2)
    with audit_files(trail.folder)[0].open("ab") as file:
        file.write(b"x" * 300_000 + b"\n")
    trail.append([login()])
    with open_audit_reader(audit_files(trail.folder), {"row_limit": 9}) as reader:
        assert [row["number"] for row in reader.dicts("audit_entry_newest")] == [4, 3, 2, 1]


def test_a_server_waits_for_the_lock(tmp_path: Path) -> None:
    trail = trail_in(tmp_path, entries=1)
    code = (
        "import fcntl, sys, time\nlock = open(sys.argv[1], 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX); print('locked', flush=True); time.sleep(0.3)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "audit.lock")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        trail.append([login()])
        assert time.monotonic() - began > 0.1
    wait_until(lambda: process.poll() is not None, description="the process has ended")

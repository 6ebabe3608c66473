"""Backup files: the content of a generation, incremental generations, damage and interruptions."""

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from embedsink.backup import create
from embedsink.backup.chunk_store import CHUNK_BYTES
from embedsink.backup.create import create_backup
from embedsink.backup.generation import BackupDamaged
from embedsink.backup.repository import Repository
from embedsink.backup.restore import restore_backup
from embedsink.backup.source import read_journal
from embedsink.data_folder import DataFolder
from embedsink.errors import Misconfigured
from tests.support.backups import GROUP, OPEN, chunk_of, contents, expected, flip, load, restored
from tests.support.given import write_segment
from tests.support.stores import make_folder


def test_a_restored_folder_has_every_file_that_can_not_be_recreated(
    folder: DataFolder, target: Path, tmp_path: Path
) -> None:
    created = create_backup(folder, target)

    assert created.warnings == ()
    assert restored(target, tmp_path / "new") == expected(folder)
    assert restored(created.manifest, tmp_path / "other") == expected(folder)


def test_a_backup_only_reads_the_data_folder(folder: DataFolder, target: Path) -> None:
    before = contents(folder.path)
    create_backup(folder, target)
    assert contents(folder.path) == before


def test_a_folder_without_a_snapshot_is_backed_up_as_its_journal(tmp_path: Path, target: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.create()
    write_segment(folder.journal, [{"type": "view"}])
    assert create_backup(folder, target).warnings == ()
    assert restored(target, tmp_path / "new") == contents(folder.path)


@pytest.mark.parametrize("umask", [0, 0o077])
def test_only_the_owner_can_read_keys_and_only_the_group_can_read_events(
    folder: DataFolder, target: Path, tmp_path: Path, umask: int
) -> None:
    old = os.umask(umask)
    try:
        create_backup(folder, target)
        restore_backup(target, DataFolder(tmp_path / "parent" / "new"))
    finally:
        os.umask(old)
    new = tmp_path / "parent" / "new"
    assert stat.S_IMODE(new.parent.stat().st_mode) == 0o750
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [new, *new.iterdir()]}
    assert modes == dict.fromkeys(["new", "journal", "damaged", "dashboards"], 0o750) | {
        "keys.json": 0o600,
        "analytics.duckdb": 0o640,
        "identity.toml": 0o640,
        "privacy.toml": 0o640,
        "internal.toml": 0o640,
        "privacy_secrets.json": 0o600,
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in [target, *target.rglob("*")]} == {0o600, 0o700}


def test_a_second_backup_stores_only_changed_chunks(folder: DataFolder, target: Path, tmp_path: Path) -> None:
    with duckdb.connect(str(folder.snapshot)) as snapshot:
        snapshot.execute("create table filler as select random() from range(1_500_000)")
    first = create_backup(folder, target)
    second_backup = create_backup(folder, target)
    with duckdb.connect(str(folder.snapshot)) as snapshot:
        snapshot.execute("insert into filler values (1)")
    changed = create_backup(folder, target)

    assert first.new_byte_count == first.generation.byte_count > 10 * CHUNK_BYTES
    assert second_backup.new_byte_count == 0
    assert 0 < changed.new_byte_count <= 4 * CHUNK_BYTES
    assert restored(target, tmp_path / "new") == expected(folder)


def test_the_next_backup_rewrites_a_damaged_chunk(folder: DataFolder, target: Path, tmp_path: Path) -> None:
    create_backup(folder, target)
    flip(chunk_of(target, "analytics.duckdb"))
    chunk_of(target, "keys.json").write_bytes(b"")

    warnings = create_backup(folder, target).warnings

    assert sorted(warnings) == sorted(
        f"chunk {chunk_of(target, name).name}: was damaged and has been rewritten."
        for name in ("analytics.duckdb", "keys.json")
    )
    assert restored(target, tmp_path / "new") == expected(folder)


def test_a_damaged_segment_is_backed_up_unchanged_and_reported(
    folder: DataFolder, target: Path, tmp_path: Path
) -> None:
    flip(folder.journal / "000000000003-00000000.ndjson")
    [warning] = create_backup(folder, target).warnings
    assert "journal/000000000003-00000000.ndjson: its checksum does not match (offset 0)." in warning
    assert restored(target, tmp_path / "new") == expected(folder)


@pytest.mark.parametrize("byte_count", [len(GROUP), 0])
def test_a_truncated_sealed_segment_is_reported(folder: DataFolder, target: Path, byte_count: int) -> None:
    (folder.journal / f"000000000005-00000000-{2 * len(GROUP)}.ndjson").write_bytes(GROUP[:byte_count])
    [warning] = create_backup(folder, target).warnings
    assert f"bytes are missing: {byte_count} of {2 * len(GROUP)} are left" in warning


def test_a_missing_segment_is_reported(folder: DataFolder, target: Path) -> None:
    write_segment(folder.journal, [{"type": "view"}], number=9)
    assert create_backup(folder, target).warnings == (
        "journal: segments 5 to 8 are missing. Run `embedsink doctor` for advice.",
    )


def test_a_damaged_snapshot_adds_no_generation(folder: DataFolder, target: Path) -> None:
    create_backup(folder, target)
    content = bytearray(folder.snapshot.read_bytes())
    for index in range(20_000, len(content), 4_096):
        content[index] ^= 1
    folder.snapshot.write_bytes(content)
    with pytest.raises(Misconfigured, match=r"^analytics\.duckdb: can't be read \(.*No backup was made"):
        create_backup(folder, target)
    assert len(Repository(target).generation_names()) == 1


def test_an_open_and_a_sealed_segment_of_one_name_are_both_backed_up(folder: DataFolder, target: Path) -> None:
    (folder.journal / "000000000004-00000000.ndjson").write_bytes(GROUP * 2)
    names = {file.name for file in create_backup(folder, target).generation.files}
    assert {OPEN, OPEN.replace("open", "ndjson")} <= names


def test_the_beginning_of_a_segment_in_the_snapshot_is_omitted(folder: DataFolder, target: Path) -> None:
    # The server sealed and loaded the segment, and published a snapshot, after the backup had read it.
    (folder.journal / "000000000003-00000000.ndjson").rename(folder.journal / "000000000003-00000000.open")
    names = {file.name for file in create_backup(folder, target).generation.files}
    assert "journal/000000000003-00000000.open" not in names


def test_a_segment_has_the_same_identity_under_each_of_its_names(folder: DataFolder, target: Path) -> None:
    sealed = folder.journal / "000000000003-00000000.ndjson"
    sealed.rename(sealed.with_name("000000000003-00000000-1234.ndjson"))
    names = {file.name for file in create_backup(folder, target).generation.files}
    assert "journal/000000000003-00000000-1234.ndjson" in names


def test_a_concurrent_backup_is_refused(folder: DataFolder, target: Path) -> None:
    with Repository(target).writing(), pytest.raises(Misconfigured, match="another backup is writing to it"):
        create_backup(folder, target)
    create_backup(folder, target)


def test_the_folder_of_another_server_is_refused(folder: DataFolder, target: Path, tmp_path: Path) -> None:
    other = DataFolder(shutil.copytree(folder.path, tmp_path / "other"))
    new = DataFolder(tmp_path / "new")
    new.create()
    create_backup(folder, target)
    create_backup(other, target)  # There is no difference yet: it may be a restored folder.
    (folder.journal / OPEN.removeprefix("journal/")).unlink()
    load(folder, 4, 5)
    load(other, 4)
    create_backup(folder, target)
    renamed = other.journal / "000000000005-ffffffff.ndjson"
    shutil.copy(folder.journal / "000000000005-00000000.ndjson", renamed)
    before = contents(target)
    for wrong in (other, new):
        with pytest.raises(Misconfigured, match="contains backups of a data folder other than"):
            create_backup(wrong, target)
    renamed.unlink()
    with pytest.raises(Misconfigured, match="or of a later state of it"):
        create_backup(other, target)
    assert contents(target) == before
    load(folder, *range(6, 20))
    create_backup(folder, target)
    assert len(Repository(target).generation_names()) == 4


def test_the_folder_of_another_server_without_sealed_segments_is_refused(
    folder: DataFolder, target: Path, tmp_path: Path
) -> None:
    for path in folder.journal.iterdir():
        path.unlink()
    create_backup(folder, target)
    other = make_folder(tmp_path / "other")
    for number in range(1, 9):
        path = write_segment(other.journal, [{"type": "view", "id": number}], number=number)
        path.rename(path.with_name(path.name.replace("-00000000", "-ffffffff")))
    with pytest.raises(Misconfigured, match="contains backups of a data folder other than"):
        create_backup(other, target)
    create_backup(folder, target)


@contextlib.contextmanager
def edited(manifest: Path) -> Iterator[dict[str, Any]]:
    """Yield the generation in a manifest, and write it back with its checksum."""
    content = json.loads(manifest.read_text())
    yield content["generation"]
    canonical = json.dumps(content["generation"], sort_keys=True, separators=(",", ":"))
    content["sha256"] = hashlib.sha256(canonical.encode()).hexdigest()
    manifest.write_text(json.dumps(content))


def test_the_manifest_of_an_older_version_is_read(folder: DataFolder, target: Path, tmp_path: Path) -> None:
    manifest = create_backup(folder, target).manifest
    with edited(manifest) as generation:
        del generation["segments"]
    create_backup(folder, target)
    assert restored(manifest, tmp_path / "new") == expected(folder)


def test_compacted_segments_do_not_make_the_folder_look_foreign(
    folder: DataFolder, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MIN", 1)
    monkeypatch.setattr("embedsink.store.ledger.LEDGER_ROWS_MAX", 2)
    (folder.path / OPEN).unlink()
    create_backup(folder, target)
    for number in range(4, 9):
        load(folder, number)
        for path in folder.journal.iterdir():
            path.unlink()
    with duckdb.connect(str(folder.snapshot), read_only=True) as snapshot:
        assert snapshot.execute("select min(first_number) from loaded_segment").fetchall() == [(1,)]
    assert create_backup(folder, target).warnings == ()


def test_a_segment_in_damaged_does_not_make_the_folder_look_foreign(folder: DataFolder, target: Path) -> None:
    write_segment(folder.journal, [{"type": "view"}], number=5)
    create_backup(folder, target)
    name = "000000000005-00000000.ndjson"
    (folder.journal / name).rename(folder.damaged / name)
    create_backup(folder, target)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder, target: (target.mkdir(), (target / "holiday.jpg").touch()), "is not empty and not a backup"),
        (lambda folder, target: shutil.rmtree(folder.journal), "is not a data folder, because it has no journal/"),
        (lambda folder, target: folder.restoring.mkdir(), "is only partly restored"),
        (lambda folder, target: target.symlink_to(folder.path / "backup"), "is inside the data folder"),
    ],
    ids=["another target", "no data folder", "partly restored", "target in the data"],
)
def test_a_refused_backup_writes_nothing(
    folder: DataFolder, target: Path, spoil: Callable[[DataFolder, Path], object], sentence: str
) -> None:
    spoil(folder, target)
    before = contents(target.parent)
    with pytest.raises(Misconfigured, match=sentence):
        create_backup(folder, target)
    assert contents(target.parent) == before


def test_generations_sort_by_age_even_if_the_clock_was_set_back(
    folder: DataFolder, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = ["2099-01-01T00:00:00.000+00:00", "2026-11-23T09:30:12.417+00:00", "2026-11-23T09:30:12.417+00:00"]
    names = []
    for moment in moments:
        monkeypatch.setattr(create, "_utc_now_text", lambda moment=moment: moment)
        names.append(create_backup(folder, target).manifest.name)
    assert names == [f"20990101T000000.00{index}Z.json" for index in range(3)]
    assert [Repository(target).read(name).began_at for name in Repository(target).generation_names()] == moments


def test_deleting_old_generations_keeps_the_chunks_of_the_others(
    folder: DataFolder, target: Path, tmp_path: Path
) -> None:
    for number in range(5, 9):
        load(folder, number)
        create_backup(folder, target)
    (target / "blocks/ab").mkdir(exist_ok=True)
    (target / "blocks/ab" / ("ab" * 32)).write_bytes(b"of an interrupted backup")
    (target / "blocks/ab/notes.txt").write_bytes(b"not ours")
    repository = Repository(target)

    assert repository.delete_all_but(2) == 2

    generations = [repository.read(name) for name in repository.generation_names()]
    assert len(generations) == 2
    chunks = {path.name for path in target.glob("blocks/*/*")} - {"notes.txt"}
    assert chunks == generations[0].chunks | generations[1].chunks
    assert restored(target, tmp_path / "new") == expected(folder)
    assert repository.delete_all_but(2) == 0


def test_nothing_is_deleted_while_a_kept_manifest_is_damaged(folder: DataFolder, target: Path) -> None:
    for _ in range(3):
        manifest = create_backup(folder, target).manifest
    flip(manifest)
    before = contents(target)
    with pytest.raises(BackupDamaged, match=f"{manifest.name}: .* Nothing was deleted. Move"):
        Repository(target).delete_all_but(2)
    assert contents(target) == before


def damage_chunk(target: Path) -> str:
    flip(chunk_of(target, "analytics.duckdb", 1))
    chunk = chunk_of(target, "analytics.duckdb", 1).name
    return f"analytics.duckdb: chunk {chunk}: its content does not match its SHA-256"


def delete_chunk(target: Path) -> str:
    path = chunk_of(target, "analytics.duckdb", 1)
    path.rename(path.with_name("gone"))
    return f"analytics.duckdb: chunk {path.name}: No such file or directory"


def damage_manifest(target: Path) -> str:
    path = sorted((target / "generations").iterdir())[-1]
    path.write_text(path.read_text().replace('"keys.json"', '"damaged/keys"'))
    return f"generations/{path.name}: its checksum does not match"


@pytest.mark.parametrize("damage", [damage_chunk, delete_chunk, damage_manifest])
def test_a_damaged_backup_restores_nothing_and_names_an_intact_generation(
    folder: DataFolder, target: Path, tmp_path: Path, damage: Callable[[Path], str]
) -> None:
    intact_manifest = create_backup(folder, target).manifest
    with duckdb.connect(str(folder.snapshot)) as snapshot:
        snapshot.execute("create table filler as select random() from range(300_000)")
    create_backup(folder, target)
    message = damage(target)

    with pytest.raises(BackupDamaged) as raised:
        restore_backup(target, DataFolder(tmp_path / "new"))

    assert f"{message}. Nothing was restored. " in str(raised.value)
    assert (
        f"Restore an older, intact generation: `embedsink restore {intact_manifest} --data {tmp_path / 'new'}`."
        in str(raised.value)
    )
    assert not (tmp_path / "new").exists()
    chunk_of(target, "journal/000000000003-00000000.ndjson").unlink() if damage is not damage_manifest else None
    intact_manifest.unlink()
    with pytest.raises(BackupDamaged, match=r"No older generation is intact\.$"):
        restore_backup(target, DataFolder(tmp_path / "new"))


def test_a_manifest_with_the_former_folder_aside_restores_into_damaged(
    folder: DataFolder, target: Path, tmp_path: Path
) -> None:
    (folder.damaged / "lost-1.txt").write_text("journal: segment 4 is lost.")
    manifest = create_backup(folder, target).manifest
    with edited(manifest) as generation:
        for file in generation["files"]:
            file["name"] = file["name"].replace("damaged/", "aside/")
    assert "aside/lost-1.txt" in manifest.read_text()
    new = DataFolder(tmp_path / "new")
    restore_backup(target, new)
    assert (new.damaged / "lost-1.txt").read_text() == "journal: segment 4 is lost."
    assert not (new.path / "aside").exists()


@pytest.mark.parametrize("name", ["../escaped", "journal/../../escaped", "/etc/cron.d/x", "store.duckdb", "damaged/.."])
def test_a_manifest_can_not_write_outside_the_folder(
    folder: DataFolder, target: Path, tmp_path: Path, name: str
) -> None:
    manifest = create_backup(folder, target).manifest
    with edited(manifest) as generation:
        generation["files"][0]["name"] = name
    with pytest.raises(BackupDamaged, match="contains a file that does not belong to a data folder"):
        restore_backup(target, DataFolder(tmp_path / "new"))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "generation": 1, "sha256": 2}', "["]
)
def test_an_invalid_manifest_is_a_clear_error(folder: DataFolder, target: Path, tmp_path: Path, content: str) -> None:
    create_backup(folder, target).manifest.write_text(content)
    with pytest.raises(BackupDamaged, match=r"is not the manifest of a backup|its checksum does not match"):
        restore_backup(target, DataFolder(tmp_path / "new"))


def test_a_backup_of_a_newer_format_is_refused(folder: DataFolder, target: Path, tmp_path: Path) -> None:
    manifest = create_backup(folder, target).manifest
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(BackupDamaged, match="has the format 2, but this version of embedsink reads 1"):
        restore_backup(target, DataFolder(tmp_path / "new"))


def test_a_restore_refuses_a_nonempty_folder(folder: DataFolder, target: Path) -> None:
    create_backup(folder, target)
    before = contents(folder.path)
    with pytest.raises(Misconfigured, match=r"is not empty\. Name a new folder with --data\."):
        restore_backup(target, folder)
    assert contents(folder.path) == before


def test_a_restore_accepts_an_empty_file_system(folder: DataFolder, target: Path, tmp_path: Path) -> None:
    create_backup(folder, target)
    (tmp_path / "new/lost+found").mkdir(parents=True)
    assert restored(target, tmp_path / "new") == expected(folder)


def test_a_restore_refuses_other_folders(folder: DataFolder, tmp_path: Path) -> None:
    manifest = create_backup(folder, tmp_path / "back up").manifest
    for path, sentence in (
        (folder.path, "is not a backup, because it has no generations/"),
        (folder.keys, "is not a backup, because it has no generations/"),
        (tmp_path / "missing", "is not a backup, because it has no generations/"),
        (Path("/"), "is not a backup, because it has no generations/"),
        (manifest.with_name("nope.json"), r"`embedsink backup '.*back up' --list` lists them"),
    ):
        with pytest.raises(Misconfigured, match=sentence):
            restore_backup(path, DataFolder(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_server_does_not_start_on_a_partly_restored_folder(folder: DataFolder, target: Path, tmp_path: Path) -> None:
    other = DataFolder(shutil.copytree(folder.path, tmp_path / "other"))
    folder.restoring.mkdir()
    with pytest.raises(Misconfigured, match="is only partly restored, because it contains restoring/"):
        folder.create()
    create_backup(other, target)
    with pytest.raises(Misconfigured, match="an earlier restore into it is running or was interrupted"):
        restore_backup(target, folder)


def test_the_time_of_a_backup_is_before_its_first_read(
    folder: DataFolder, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at: list[datetime] = []

    def noting(data: DataFolder) -> object:
        asked_at.append(datetime.now(UTC))
        return read_journal(data)

    monkeypatch.setattr("embedsink.backup.create.read_journal", noting)
    began_at = datetime.fromisoformat(create_backup(folder, target).generation.began_at)
    assert began_at <= asked_at[0]


def test_a_salvaged_store_continues_its_backups(folder: DataFolder, target: Path) -> None:
    create_backup(folder, target)
    with contextlib.closing(duckdb.connect(str(folder.snapshot))) as snapshot:
        # the name that sql/salvage/3_ledger.sql gives to segments with an unreadable ledger
        snapshot.execute("update loaded_segment set segment = left(segment, 12) || '-00000000.ndjson'")
    for number in range(1, 4):
        for path in folder.journal.glob(f"{number:012d}-*"):
            path.unlink()
    assert create_backup(folder, target).manifest.exists()


def test_distant_segment_numbers_use_no_memory(folder: DataFolder, target: Path) -> None:
    write_segment(folder.journal, [{"type": "view", "id": 1}], number=20_000_000)
    tracemalloc.start()
    [warning] = [message for message in create_backup(folder, target).warnings if "missing" in message]
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()
    assert "journal: segments 5 to 19,999,999 are missing" in warning

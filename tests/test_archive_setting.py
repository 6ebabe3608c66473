"""The setting of the archive."""

import asyncio
from pathlib import Path

import pytest

from embedsink.engine import Engine
from embedsink.errors import Misconfigured
from embedsink.settings import Settings, read_settings
from tests.support.stores import make_folder


@pytest.mark.parametrize("value", ["", "archive", "s3:bucket", "s3://", "https://bucket"])
def test_other_values_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDSINK_ARCHIVE", value)
    monkeypatch.setenv("EMBEDSINK_RETENTION_DAYS", "90")
    with pytest.raises(Misconfigured, match="EMBEDSINK_ARCHIVE"):
        read_settings()


def test_an_archive_without_a_retention_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDSINK_ARCHIVE", "/var/archive")
    monkeypatch.setenv("EMBEDSINK_DAILY_TOTALS", "off")
    monkeypatch.setenv("EMBEDSINK_RETENTION_DAYS_BY_DEPLOYMENT", "1=0")
    with pytest.raises(Misconfigured, match="needs EMBEDSINK_RETENTION_DAYS"):
        read_settings()
    monkeypatch.setenv("EMBEDSINK_RETENTION_DAYS_BY_DEPLOYMENT", "1=0,2=30")
    read_settings()
    monkeypatch.delenv("EMBEDSINK_RETENTION_DAYS_BY_DEPLOYMENT")
    monkeypatch.setenv("EMBEDSINK_RETENTION_DAYS", "90")
    assert read_settings().archive == "/var/archive"


def test_an_archive_in_the_data_folder_is_refused(tmp_path: Path) -> None:
    async def open_engine() -> None:
        settings = Settings(archive=str(tmp_path / "data" / "archive"), retention_days=90)
        async with Engine(make_folder(tmp_path / "data"), settings):
            pass

    with pytest.raises(Misconfigured, match="is in the data folder"):
        asyncio.run(open_engine())


def test_object_storage_is_not_a_folder_of_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path / "data")
    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    async def open_engine() -> None:
        async with Engine(folder, Settings(archive="s3://bucket/embedsink", retention_days=90)):
            pass

    asyncio.run(open_engine())

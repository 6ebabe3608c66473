"""The output of `embedsink report`: files, folders, stdout, and the list of reports."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import typer

from embedsink.cli.options import WrongUse
from embedsink.cli.output import atomic_write, fail, print_message, strip_control
from embedsink.cli.tables import print_table
from embedsink.reports.format import REPORT_FORMATS, Format

TABLE = "table"
FORMATS = (TABLE, *REPORT_FORMATS)
REPORT_COLUMNS = ("name", "question", "grain", "columns")
COLUMN_COLUMNS = ("name", "type", "unit", "description")


def print_catalog(catalog: list[dict[str, Any]] | dict[str, Any], format: str) -> None:
    """Print the list of reports, or the description of one.

    Args:
        catalog: all reports, or one.
        format: table or json.
    """
    if format == Format.JSON:
        typer.echo(json.dumps(catalog, indent=2, ensure_ascii=False))
    elif format != TABLE:
        raise WrongUse(f"--format {format}: needs rows. Use table or json here, or name a report.")
    elif isinstance(catalog, list):
        print_table(REPORT_COLUMNS, [_report_row(report) for report in catalog])
        print_message("Describe the columns of one: `embedsink report NAME --describe`.")
    else:
        for line in (f"{catalog['name']}: {catalog['question']}", catalog["grain"], ""):
            typer.echo(strip_control(line))
        print_table(COLUMN_COLUMNS, [[column[name] for name in COLUMN_COLUMNS] for column in catalog["columns"]])


def _report_row(report: dict[str, Any]) -> list[str]:
    columns = ", ".join(column["name"] for column in report["columns"])
    return [report["name"], report["question"], report["grain"], columns]


def write_report(chunks: Iterable[bytes], format: Format, output: Path | None) -> None:
    """Write a report to a file, or to stdout. On a terminal, control characters are escaped."""
    if output is not None:
        with atomic_write(output) as part, part.open("wb") as file:
            file.writelines(chunks)
        return
    if sys.stdout.isatty():
        if format in (Format.PARQUET, Format.ARROW):
            raise WrongUse(f"--format {format}: is binary, and not for a terminal. Add -o FILE.")
        for chunk in chunks:
            typer.echo(strip_control(chunk.decode().replace("\r\n", "\n")), nl=False)
    else:
        sys.stdout.buffer.writelines(chunks)
        sys.stdout.buffer.flush()
    if format is Format.JSON:
        typer.echo()


def write_summary(chunks: Iterable[bytes], output: Path) -> None:
    """Write a ZIP of all reports, or extract it to a folder. Existing files are replaced only if all were extracted."""
    if output.suffix == ".zip":
        write_report(chunks, Format.CSV, output)
        return
    from zipfile import ZipFile

    with TemporaryFile() as file:
        file.writelines(chunks)
        try:
            output.mkdir(parents=True, exist_ok=True)
            with ZipFile(file) as archive, TemporaryDirectory(prefix=".", suffix=".part", dir=output) as extracted:
                archive.extractall(extracted)  # It rejects paths outside the folder.
                replaced_count = _move_files(Path(extracted), output)
        except OSError as error:
            fail(f"{output}: {error.strerror}. Choose another path.")
    if replaced_count:
        noun = "file" if replaced_count == 1 else "files"
        print_message(f"{output}: replaced {replaced_count} existing {noun}.")


def _move_files(source: Path, target: Path) -> int:
    """Move all files into a folder, and return how many they replaced."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    targets = [target / path.relative_to(source) for path in files]
    if folders := [path for path in targets if path.is_dir()]:
        fail(f"{folders[0]}: is a folder. Choose another path.")
    replaced_count = sum(path.exists() for path in targets)
    for file, path in zip(files, targets, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        file.replace(path)
    return replaced_count

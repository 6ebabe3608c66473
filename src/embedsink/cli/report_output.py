"""The output of `embedsink report`: files, folders, stdout, and the list of reports."""

import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import typer

from embedsink.cli.options import UsageError
from embedsink.cli.output import atomic_write, escape_control, fail, print_json, print_message
from embedsink.cli.tables import print_table
from embedsink.reports.format import REPORT_FORMATS, Format

TABLE = "table"
FORMATS = (TABLE, *REPORT_FORMATS)
REPORT_COLUMNS = ("name", "question", "grain", "columns")
# The columns of the table that describes a report's columns.
DESCRIPTION_COLUMNS = ("name", "type", "unit", "description")


def print_reports(reports: list[dict[str, Any]], format: str) -> None:
    """Print the list of reports, as a table or as JSON."""
    _check_catalog_format(format)
    if format == Format.JSON:
        print_json(reports)
        return
    print_table(REPORT_COLUMNS, [_report_row(report) for report in reports])
    print_message("Describe the columns of one: `embedsink report NAME --describe`.")


def print_description(report: dict[str, Any], format: str) -> None:
    """Print the question, the grain and the columns of a report, as a table or as JSON."""
    _check_catalog_format(format)
    if format == Format.JSON:
        print_json(report)
        return
    typer.echo(escape_control(f"{report['name']}: {report['question']}"))
    typer.echo(escape_control(report["grain"]))
    typer.echo()
    print_table(DESCRIPTION_COLUMNS, [[column[name] for name in DESCRIPTION_COLUMNS] for column in report["columns"]])
    dimensions = report.get("dimensions")  # Servers of earlier versions send none.
    if dimensions:
        typer.echo()
        typer.echo("--by adds these columns:")
        print_table(DESCRIPTION_COLUMNS, [[column[name] for name in DESCRIPTION_COLUMNS] for column in dimensions])


def _check_catalog_format(format: str) -> None:
    """Raise a usage error for a format that is for the rows of a report only."""
    if format not in (TABLE, Format.JSON):
        raise UsageError(f"--format {format}: needs rows. Use table or json here, or read the rows of a report.")


def _report_row(report: dict[str, Any]) -> list[str]:
    """Return the row of a report in the list of reports."""
    column_names = ", ".join(column["name"] for column in report["columns"])
    return [report["name"], report["question"], report["grain"], column_names]


def write_report(chunks: Iterable[bytes], format: Format, output: Path | None) -> None:
    """Write a report to a file, or to stdout if there is no file."""
    if output is not None:
        with atomic_write(output) as temporary, temporary.open("wb") as file:
            file.writelines(chunks)
        return
    if sys.stdout.isatty():
        _print_on_terminal(chunks, format)
    else:
        sys.stdout.buffer.writelines(chunks)
        sys.stdout.buffer.flush()
    if format is Format.JSON:
        typer.echo()  # The JSON of a report does not end in a line break.


def _print_on_terminal(chunks: Iterable[bytes], format: Format) -> None:
    """Print a report with control characters escaped, or raise a usage error if the format is binary."""
    if format in (Format.PARQUET, Format.ARROW):
        raise UsageError(f"--format {format}: is binary and can't be printed on a terminal. Add -o FILE.")
    # Read lines from a file, because a chunk can end in the middle of a line or of a character.
    with TemporaryFile("w+", encoding="utf-8") as file:
        for chunk in chunks:
            file.buffer.write(chunk)
        file.seek(0)
        for line in file:  # Reading converts the `\r\n` of csv, which would be escaped.
            typer.echo(escape_control(line), nl=False)


def write_summary(chunks: Iterable[bytes], output: Path) -> None:
    """Write a ZIP file of all reports if the path ends in `.zip`. Otherwise extract the ZIP file to a folder."""
    if output.suffix == ".zip":
        with atomic_write(output) as temporary, temporary.open("wb") as file:
            file.writelines(chunks)
    else:
        _extract_summary(chunks, output)


def _extract_summary(chunks: Iterable[bytes], folder: Path) -> None:
    """Extract a ZIP file to a folder. Existing files are replaced only after the whole ZIP file was extracted."""
    from zipfile import ZipFile

    with TemporaryFile() as file:
        file.writelines(chunks)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The temporary folder is on the same disk, so that the files can be renamed.
            with (
                ZipFile(file) as archive,
                TemporaryDirectory(prefix=".", suffix=".part", dir=folder) as temporary_folder,
            ):
                archive.extractall(temporary_folder)  # `extractall` writes nothing outside `temporary_folder`.
                replaced_count = _move_files(Path(temporary_folder), folder)
        except OSError as error:
            fail(f"{folder}: {error.strerror}. Choose another path.")
    if replaced_count:
        noun = "file" if replaced_count == 1 else "files"
        print_message(f"{folder}: replaced {replaced_count} existing {noun}.")


def _move_files(source_folder: Path, target_folder: Path) -> int:
    """Move all files of a folder to another folder, and return the number of replaced files.

    If the target of a file is a folder, print an error message and exit before any file is moved.
    """
    files = sorted(path for path in source_folder.rglob("*") if path.is_file())
    target_files = [target_folder / path.relative_to(source_folder) for path in files]
    for target_file in target_files:
        if target_file.is_dir():
            fail(f"{target_file}: is a folder. Choose another path.")
    replaced_count = sum(target_file.exists() for target_file in target_files)
    for file, target_file in zip(files, target_files, strict=True):
        target_file.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target_file)
    return replaced_count

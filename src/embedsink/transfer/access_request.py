"""The access request: everything about one person in one ZIP (GDPR, article 15).

events.ndjson      the events and actions, as deliveries that `embedsink import` reads
rejections.json    the quarantined rejections
losses.json        the losses that the forwarder reported for the person's sessions
directory.json     the users of the directory
manifest.json      the person, and what was searched
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile

import orjson

from embedsink import __version__
from embedsink.privacy.person import Person
from embedsink.privacy.redaction import Privacy
from embedsink.store.reader import Reader
from embedsink.transfer.export import export_ndjson

_VIEWS = {"rejections": "person_rejection", "losses": "person_loss", "directory": "person_directory"}


def write_person(
    reader: Reader, person: Person, privacy: Privacy, file: IO[bytes], *, snapshot_at: datetime
) -> dict[str, int]:
    """Write everything about a person to a ZIP. Return the number of items in each of its files, without the manifest.

    Args:
        reader: a reader with `Person.variables`.
        person: the person.
        privacy: the privacy rules of the data folder.
        file: the open file.
        snapshot_at: when the snapshot was published. Later events are not included.
    """
    counts: dict[str, int] = {}
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        with archive.open("events.ndjson", "w", force_zip64=True) as entry:
            counts["events"] = 0
            for chunk in export_ndjson(reader):
                entry.write(chunk)
                counts["events"] += chunk.count(b"\n")
        for name, view in _VIEWS.items():
            rows = reader.dicts(view)
            counts[name] = len(rows)
            archive.writestr(f"{name}.json", _encode(_with_resources(rows)))
        manifest = {
            "writtenAt": datetime.now(UTC),
            "embedsink": __version__,
            "snapshotAt": snapshot_at,
            "viewer": person.viewer,
            "tenants": None if person.tenants is None else sorted(person.tenants),
            "deployments": None if person.deployments is None else sorted(person.deployments),
            "searchedViewers": privacy.stored_forms("viewer", person.viewer),
            "counts": counts,
        }
        archive.writestr("manifest.json", _encode(manifest))
    return counts


def _with_resources(rows: Iterable[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return rows whose SCIM resources are objects instead of text."""
    return [row | {"resource": orjson.loads(row["resource"])} if "resource" in row else row for row in rows]


def _encode(value: object) -> bytes:
    options = orjson.OPT_INDENT_2 | orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(value, option=options)

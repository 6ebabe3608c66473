"""The entries of the audit trail: filters, pages with the newest entries first, and the columns of an export."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from embedsink.audit.entry import Action
from embedsink.audit.trail import audit_files
from embedsink.errors import Refused, preview
from embedsink.reasons import Reason
from embedsink.reports.format import Format
from embedsink.reports.parameters import parse_choice, parse_text
from embedsink.reports.scope import parse_instant
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader

PARAMETERS = ("since", "until", "action", "actor")
EXPORT_FORMATS = (Format.CSV, Format.NDJSON)
COLUMNS = (
    *("number", "recorded_at", "action", "actor", "actor_label", "via", "client_address"),
    *("target", "outcome", "action_count", "detail"),
)
# An export has the entries in the order of the trail.
EXPORT = SelectQuery("audit_entry_in_scope", columns=COLUMNS)
# A page first reads the newest file, then this many times as many.
_GROWTH = 8
_CURSOR = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)\.(?P<number>\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """The filter of entries. None selects all.

    Args:
        since: the first time, in UTC.
        until: the end, exclusive, in UTC.
        action: one of `Action`.
        actor: the id or the label of an actor.
    """

    since: datetime | None = None
    until: datetime | None = None
    action: str | None = None
    actor: str | None = None

    @classmethod
    def parse(cls, params: Mapping[str, str | None]) -> "AuditFilter":
        """Parse the parameters `PARAMETERS`. Raise Refused (`bad_parameter`) if one is invalid."""
        return cls(
            parse_instant("since", params.get("since")),
            parse_instant("until", params.get("until")),
            parse_choice("action", params.get("action"), list(Action)),
            parse_text("actor", params.get("actor")),
        )

    def variables(self) -> dict[str, object]:
        """Return the session variables that the views read."""
        return {"since": self.since, "until": self.until, "action": self.action, "actor": self.actor}

    def files(self, folder: Path) -> list[Path]:
        """Return the files that may have such entries, the oldest first.

        An entry may be in the file of a later day: after the clock was set back, the newest file is continued.
        """
        first = "" if self.since is None else f"{self.since:%Y-%m-%d}"
        return [path for path in audit_files(folder) if path.stem >= first]


@dataclass(frozen=True, slots=True)
class AuditCursor:
    """The position after which a page begins: the number of an entry, and the day of its file."""

    day: str
    number: int

    @classmethod
    def parse(cls, text: str | None) -> "AuditCursor | None":
        """Parse the text of a cursor; None for None. Raise Refused (`bad_parameter`) if it is not a cursor."""
        if text is None:
            return None
        match = _CURSOR.fullmatch(text)
        if match is None:
            detail = f"cursor: {preview(text)} is not a cursor. Send the `nextCursor` of the previous page."
            raise Refused(Reason.BAD_PARAMETER, detail)
        return cls(match["day"], int(match["number"]))

    def __str__(self) -> str:
        return f"{self.day}.{self.number}"


def newest_entries(
    reader: Reader, files: Sequence[Path], *, limit: int, cursor: AuditCursor | None = None
) -> tuple[list[dict[str, Any]], AuditCursor | None]:
    """Return the newest entries, and the cursor of the next page; None on the last page.

    Args:
        reader: a reader of the audit trail with the variables of an `AuditFilter`.
        files: the files of the filter, the oldest first.
        limit: the maximum number of entries.
        cursor: only entries before this one.
    """
    if cursor is not None:
        files = [path for path in files if path.stem <= cursor.day]
    # One more row shows whether there is a next page.
    reader.set_variables(before_number=cursor.number if cursor is not None else None, row_limit=limit + 1)
    rows: list[dict[str, Any]] = []
    file_count = 1
    while files:
        reader.set_variables(audit_files=[str(path) for path in files[-file_count:]])
        rows = reader.dicts("audit_entry_newest")
        if len(rows) > limit or file_count >= len(files):
            break
        file_count *= _GROWTH
    page = rows[:limit]
    return page, AuditCursor(page[-1]["day"], page[-1]["number"]) if len(rows) > limit else None

"""Pagination: a limit, and a cursor that continues after the last row while events are being loaded.

Pages are in the order of `ingest_seq`, which only grows: a row that is loaded between two pages comes after both. There
are two exceptions, where a row with an earlier `ingest_seq` appears late and later pages omit it: a late answer changes
how the stages of an AI query pair up, and a late `ready` assigns its session's events to a deployment
(docs/reports.md).
"""

import base64
import binascii
import struct
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2s

from embedsink.errors import Refused, preview
from embedsink.reasons import Reason
from embedsink.reports.catalog import EVENTS, is_windowed, known_columns, visible_columns
from embedsink.reports.opaque_numbers import OpaqueNumbers
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader

LIMIT_MAX = 100_000

_BYTES = struct.Struct(">Bqqq8s")
_VERSION = 1
_NEVER = -(2**63)
# Opaque numbers are unsigned, and the cursor stores a signed number.
_SIGN_OFFSET = 2**63
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The start of the next page: the last `ingest_seq` so far, and the period.

    The period is included so that an age such as `7d` means the same on each page.
    """

    after: int
    since: datetime | None
    until: datetime | None

    def encode(self, query: str, opaque: OpaqueNumbers | None = None) -> str:
        """Return the cursor as text for a URL. It is valid for this query only.

        Args:
            query: the report and its scope.
            opaque: encrypts the position, for a scoped key. Such a cursor can't be forged, and expires with the
                process.
        """
        period = (_epoch_us(self.since), _epoch_us(self.until))
        digest = _digest((_VERSION, self.after, *period), query, opaque)
        after = self.after if opaque is None else opaque.hide(self.after) - _SIGN_OFFSET
        return base64.urlsafe_b64encode(_BYTES.pack(_VERSION, after, *period, digest)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, query: str, opaque: OpaqueNumbers | None = None) -> "Cursor":
        """Parse the text of `encode`.

        Raises:
            Refused: `bad_parameter`, since the text is not a cursor, or belongs to another query.
        """
        advice = "Use the value of `X-Next-Cursor` with the same parameters, or omit it to start at the first page."
        refusal = Refused(Reason.BAD_PARAMETER, f"cursor: {preview(text)} is not valid for this query. {advice}")
        try:
            content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            version, after, since, until, digest = _BYTES.unpack(content)
            cursor = cls(
                after if opaque is None else opaque.reveal(after + _SIGN_OFFSET), _instant(since), _instant(until)
            )
        except (ValueError, OverflowError, binascii.Error, struct.error):
            raise refusal from None
        # The digest detects typing errors and cursors of other queries. A forged cursor gains nothing beyond `since`.
        if digest != _digest((version, cursor.after, since, until), query, opaque):
            raise refusal
        return cursor


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested columns and rows of a view, as texts.

    Args:
        columns: column names, separated by commas; None for all.
        limit: the maximum number of rows; None for all.
        cursor: the cursor from the previous page; None for the first page.
        query: the report and its scope, for which a cursor is valid.
        opaque: encrypts cursors, for a scoped key.
    """

    columns: str | None = None
    limit: str | None = None
    cursor: str | None = None
    query: str = ""
    opaque: OpaqueNumbers | None = None

    @property
    def is_partial(self) -> bool:
        """Whether columns, a limit or a cursor are requested."""
        return not (self.columns is None and self.limit is None and self.cursor is None)

    def select(self, reader: Reader, view: str) -> tuple[SelectQuery, Cursor | None]:
        """Return the query to run, and the cursor of the next page, or None after the last page.

        Only rows with an `ingest_seq` have pages. For other rows, a limit returns the first rows, without a next page.

        Raises:
            Refused: `bad_parameter`.
        """
        selection, cursor = self.check(reader, view)
        if not selection.is_page:
            return selection, None
        if cursor:
            reader.set_variables(after=cursor.after, since=cursor.since, until=cursor.until)
        last = reader.page(selection)
        since, until = reader.variable("since"), reader.variable("until")
        return selection, None if last is None else Cursor(last, since, until)

    def check(self, reader: Reader, view: str) -> tuple[SelectQuery, Cursor | None]:
        """Validate the request without reading rows. Return the query to run, and the requested cursor.

        Raises:
            Refused: `bad_parameter`.
        """
        visible = visible_columns(reader, view)
        limit = parse_number("limit", self.limit, most=LIMIT_MAX)
        columns = known_columns(self.columns, visible) or visible
        is_page = "ingest_seq" in visible and not (self.limit is None and self.cursor is None)
        cursor = None if self.cursor is None else self._decode(self.cursor, is_page=is_page)
        if not is_page:
            # Each report defines its own order. Raw events are sorted by `ingest_seq`.
            return SelectQuery(view, columns, limit, is_by_ingest_seq=view == EVENTS), cursor
        return SelectQuery(view, columns, limit or LIMIT_MAX, is_page=True, is_expensive=is_windowed(view)), cursor

    def _decode(self, cursor: str, *, is_page: bool) -> Cursor:
        if not is_page:
            raise Refused(Reason.BAD_PARAMETER, "cursor: this report has no pages. Omit it.")
        return Cursor.decode(cursor, self.query, self.opaque)


def parse_number(name: str, text: str | None, *, most: int, least: int = 1) -> int | None:
    """Parse an integer between `least` and `most`. Return None for None.

    Raises:
        Refused: `bad_parameter`.
    """
    if text is None:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else -1
    if str(number) != text or not least <= number <= most:
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {preview(text)} is not an integer from {least} to {most:,}.")
    return number


def _digest(numbers: tuple[int, ...], query: str, opaque: OpaqueNumbers | None) -> bytes:
    content = f"{numbers} {query}".encode(errors="surrogatepass")
    return blake2s(content, digest_size=8, key=b"" if opaque is None else opaque.secret).digest()


def _epoch_us(instant: datetime | None) -> int:
    return _NEVER if instant is None else (instant - _EPOCH) // timedelta(microseconds=1)


def _instant(epoch_us: int) -> datetime | None:
    return None if epoch_us == _NEVER else _EPOCH + timedelta(microseconds=epoch_us)

"""Pagination: a limit, and a cursor that continues after the last row while events are being loaded.

Pages are in the order of `ingest_seq`, which only grows: a row that is loaded between two pages comes after both.
Later pages omit a row that appears late, with an `ingest_seq` before the cursor. That happens in three cases
(docs/reports.md):

- A late answer changes how the stages of an AI query pair up.
- A late `ready` assigns its session's events to a deployment.
- A repaired segment is loaded late.
"""

import base64
import binascii
import re
import struct
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2s

from embedsink.errors import Refused, preview
from embedsink.reasons import Reason
from embedsink.reports.catalog import EVENT_VIEW, parse_columns, uses_window_functions, visible_columns
from embedsink.reports.number_cipher import NumberCipher
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader

LIMIT_MAX = 100_000

# Version, `after`, `since`, `until` and digest.
_CURSOR_STRUCT = struct.Struct(">Bqqq8s")
_DIGEST_BYTES = 8
_VERSION = 1
# Stands for a period without a start or an end.
_NO_TIME_US = -(2**63)
# Encrypted numbers are unsigned, and the cursor stores a signed number.
_SIGN_OFFSET = 2**63
_INTEGER = re.compile(r"0|[1-9][0-9]*")
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Cursor:
    """The start of the next page: it begins after the `ingest_seq` `after`.

    The cursor includes the period, so that an age such as `7d` means the same on each page.
    """

    after: int
    since: datetime | None
    until: datetime | None

    def encode(self, query_id: str, cipher: NumberCipher | None = None) -> str:
        """Return the cursor as text for a URL. The text is valid for this query only.

        Args:
            query_id: a text that identifies the report and its scope.
            cipher: encrypts `after`, for a key with a scope. Such a cursor can't be forged, and
                expires with the process.
        """
        period = (_to_epoch_us(self.since), _to_epoch_us(self.until))
        digest = _digest((_VERSION, self.after, *period), query_id, cipher)
        # The cipher returns an unsigned number, and the cursor stores a signed one.
        after = self.after if cipher is None else cipher.encrypt(self.after) - _SIGN_OFFSET
        content = _CURSOR_STRUCT.pack(_VERSION, after, *period, digest)
        return base64.urlsafe_b64encode(content).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, query_id: str, cipher: NumberCipher | None = None) -> "Cursor":
        """Parse the text that `encode` returned for the same arguments.

        Raises:
            Refused: the text is not a cursor, or belongs to another query (reason `bad_parameter`).
        """
        advice = "Use the value of `X-Next-Cursor` with the same parameters, or omit it to start at the first page."
        refusal = Refused(Reason.BAD_PARAMETER, f"cursor: {preview(text)} is not valid for this query. {advice}")
        try:
            padding = "=" * (-len(text) % 4)  # `encode` has removed it.
            content = base64.b64decode(text + padding, altchars=b"-_", validate=True)
            version, stored_after, since_us, until_us, digest = _CURSOR_STRUCT.unpack(content)
            # The cursor stores a signed number, and the cipher needs an unsigned one.
            after = stored_after if cipher is None else cipher.decrypt(stored_after + _SIGN_OFFSET)
            cursor = cls(after, _from_epoch_us(since_us), _from_epoch_us(until_us))
        except (ValueError, OverflowError, binascii.Error, struct.error):
            raise refusal from None
        # The digest detects typing errors and cursors of other queries. Without a cipher, a client can forge a cursor,
        # but then reads no more rows than with a `since` of its choice.
        if version != _VERSION or digest != _digest((version, after, since_us, until_us), query_id, cipher):
            raise refusal
        return cursor


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested columns and rows of a view, as the client sent them.

    Args:
        columns: column names, separated by commas; None for all.
        limit: the maximum number of rows; None for all, or for `LIMIT_MAX` with a cursor.
        cursor: the cursor from the previous page; None for the first page.
        query_id: a text that identifies the report and its scope. A cursor is valid for this text only.
        cipher: encrypts cursors, for a scoped key.
    """

    columns: str | None = None
    limit: str | None = None
    cursor: str | None = None
    query_id: str = ""
    cipher: NumberCipher | None = None

    @property
    def is_partial(self) -> bool:
        """Whether columns, a limit or a cursor are requested."""
        return any(text is not None for text in (self.columns, self.limit, self.cursor))

    def select(self, reader: Reader, view: str) -> tuple[SelectQuery, Cursor | None]:
        """Return the query of the page, and the cursor of the next page; None after the last page.

        Only views with the column `ingest_seq` have pages. In other views, a limit returns the first rows.

        Raises:
            Refused: a column, the limit or the cursor is invalid (reason `bad_parameter`).
        """
        selection, cursor = self.check(reader, view)
        if not selection.is_page:
            return selection, None
        if cursor:
            # The period is that of the first page: an age such as `7d` would now mean a later one.
            reader.set_variables(after=cursor.after, since=cursor.since, until=cursor.until)
        last_ingest_seq = reader.page(selection)  # None for the last page
        if last_ingest_seq is None:
            return selection, None
        return selection, Cursor(last_ingest_seq, since=reader.variable("since"), until=reader.variable("until"))

    def check(self, reader: Reader, view: str) -> tuple[SelectQuery, Cursor | None]:
        """Validate the request without reading rows. Return the query of the page, and the parsed cursor, if any.

        Raises:
            Refused: a column, the limit or the cursor is invalid, or a view without pages gets a cursor (reason
                `bad_parameter`).
        """
        visible = visible_columns(reader, view)
        limit = parse_integer("limit", self.limit, maximum=LIMIT_MAX)
        columns = parse_columns(self.columns, visible) or visible
        has_pages = "ingest_seq" in visible
        cursor = None
        if self.cursor is not None:
            if not has_pages:
                raise Refused(Reason.BAD_PARAMETER, "cursor: this report is not paginated. Omit the cursor.")
            cursor = Cursor.decode(self.cursor, self.query_id, self.cipher)
        if has_pages and (limit or cursor):
            is_expensive = uses_window_functions(view)
            query = SelectQuery(view, columns, limit or LIMIT_MAX, is_page=True, is_expensive=is_expensive)
        else:
            # A report defines the order of its rows, but the view of raw events has no order.
            query = SelectQuery(view, columns, limit, is_by_ingest_seq=view == EVENT_VIEW)
        return query, cursor


def parse_integer(name: str, text: str | None, *, maximum: int, minimum: int = 1) -> int | None:
    """Parse an integer from `minimum` to `maximum`. Return None for None.

    Raises:
        Refused: the text is not such an integer (reason `bad_parameter`).
    """
    if text is None:
        return None
    # The length is limited first, because parsing a long number is slow.
    if len(text) <= len(str(maximum)) and _INTEGER.fullmatch(text) and minimum <= int(text) <= maximum:
        return int(text)
    raise Refused(Reason.BAD_PARAMETER, f"{name}: {preview(text)} is not an integer from {minimum} to {maximum:,}.")


def _digest(numbers: tuple[int, ...], query_id: str, cipher: NumberCipher | None) -> bytes:
    """Return a digest of the numbers and the query of a cursor. With a cipher, only this process can compute it."""
    content = f"{numbers} {query_id}".encode(errors="surrogatepass")  # A lone surrogate must not raise an error.
    key = b"" if cipher is None else cipher.secret
    return blake2s(content, digest_size=_DIGEST_BYTES, key=key).digest()


def _to_epoch_us(instant: datetime | None) -> int:
    """Return a time in UTC as epoch microseconds; `_NO_TIME_US` for None."""
    return _NO_TIME_US if instant is None else (instant - _EPOCH) // timedelta(microseconds=1)


def _from_epoch_us(epoch_us: int) -> datetime | None:
    """Return the time, in UTC, of epoch microseconds; None for `_NO_TIME_US`."""
    return None if epoch_us == _NO_TIME_US else _EPOCH + timedelta(microseconds=epoch_us)

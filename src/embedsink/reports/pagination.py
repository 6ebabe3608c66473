"""Pages of rows: `limit`, and a cursor that goes on after the last row, whatever arrives meanwhile.

A page is in the order of arrival. Arrivals only grow: what comes in between two pages comes after both. Two things can
show a row of an earlier arrival, which later pages leave out: a late answer that pairs the stages of an AI query anew,
and a late `ready` that says to which deployment its session's events belong (docs/reports.md).
"""

import base64
import binascii
import struct
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2s

from embedsink.errors import Refused, quote
from embedsink.reasons import Reason
from embedsink.reports.catalog import EVENTS, is_windowed, known_columns, visible_columns
from embedsink.reports.opaque_numbers import OpaqueNumbers
from embedsink.store.query import SelectQuery
from embedsink.store.reader import Reader

LIMIT_MAX = 100_000

_BYTES = struct.Struct(">Bqqq8s")
_VERSION = 1
_NEVER = -(2**63)
# Opaque numbers have no sign.
_HALF = 2**63
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next page begins: after which arrival, in which period.

    The period is in it, so that `7d` means the same on every page.
    """

    after: int
    since: datetime | None
    until: datetime | None

    def encode(self, question: str, opaque: OpaqueNumbers | None = None) -> str:
        """It as a text for an address; it belongs to this question alone.

        Args:
            question: what the page is of.
            opaque: for a reader who may not learn arrivals. Then nobody else can write such a text, and it ends with
                the process.
        """
        period = (_epoch_us(self.since), _epoch_us(self.until))
        digest = _digest((_VERSION, self.after, *period), question, opaque)
        after = self.after if opaque is None else opaque.hide(self.after) - _HALF
        return base64.urlsafe_b64encode(_BYTES.pack(_VERSION, after, *period, digest)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, question: str, opaque: OpaqueNumbers | None = None) -> "Cursor":
        """What `encode` wrote.

        Raises:
            Refused: `bad_parameter` for a text that it never wrote, or wrote for another question.
        """
        advice = "Take it from `X-Next-Cursor`, and ask the same question; or leave it out to begin anew."
        refusal = Refused(Reason.BAD_PARAMETER, f"cursor: {quote(text)} does not belong to this question. {advice}")
        try:
            content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            version, after, since, until, digest = _BYTES.unpack(content)
            cursor = cls(after if opaque is None else opaque.reveal(after + _HALF), _instant(since), _instant(until))
        except (ValueError, OverflowError, binascii.Error, struct.error):
            raise refusal from None
        # It finds slips, and cursors of other questions. Who makes one up gets no further than with `since`.
        if digest != _digest((version, cursor.after, since, until), question, opaque):
            raise refusal
        return cursor


@dataclass(frozen=True, slots=True)
class RowsAsked:
    """Which columns and rows a person wants of a view, as it was typed.

    Args:
        columns: names with commas between them; None for all.
        limit: at most so many rows; None for all.
        cursor: the page after another one.
        question: what the cursor belongs to: the report's name and the scope that was asked for.
        opaque: what the cursor is written with, for a reader who may not learn arrivals.
    """

    columns: str | None = None
    limit: str | None = None
    cursor: str | None = None
    question: str = ""
    opaque: OpaqueNumbers | None = None

    @property
    def names_rows(self) -> bool:
        """Whether anything is asked for but all of them, whole."""
        return not (self.columns is None and self.limit is None and self.cursor is None)

    def select(self, reader: Reader, view: str) -> tuple[SelectQuery, Cursor | None]:
        """What to read, and where the page after it begins; None when nothing comes after it.

        Rows with an `ingest_seq` have pages. Of others a limit gives the first rows, and there are no more.

        Raises:
            Refused: `bad_parameter`.
        """
        selection, begun = self.check(reader, view)
        if not selection.is_page:
            return selection, None
        if begun:
            reader.narrowed(after=begun.after, since=begun.since, until=begun.until)
        last = reader.page(selection)
        since, until = reader.variable("since"), reader.variable("until")
        return selection, None if last is None else Cursor(last, since, until)

    def check(self, reader: Reader, view: str) -> tuple[SelectQuery, Cursor | None]:
        """The same as far as it can be told without reading rows: what to read, and the cursor that was sent.

        Raises:
            Refused: `bad_parameter`.
        """
        visible = visible_columns(reader, view)
        limit, columns = (
            parse_number("limit", self.limit, most=LIMIT_MAX),
            known_columns(self.columns, visible) or visible,
        )
        is_page = "ingest_seq" in visible and not (self.limit is None and self.cursor is None)
        begun = None if self.cursor is None else self._begun(self.cursor, is_page=is_page)
        if not is_page:
            # Each report has an order of its own. Raw events have that of the table, which follows the loads.
            return SelectQuery(view, columns, limit, is_by_ingest_seq=view == EVENTS), begun
        return SelectQuery(view, columns, limit or LIMIT_MAX, is_page=True, is_expensive=is_windowed(view)), begun

    def _begun(self, cursor: str, *, is_page: bool) -> Cursor:
        if not is_page:
            raise Refused(Reason.BAD_PARAMETER, "cursor: these rows have no order of arrival. Leave it out.")
        return Cursor.decode(cursor, self.question, self.opaque)


def parse_number(name: str, text: str | None, *, most: int, least: int = 1) -> int | None:
    """How many rows, or seconds, are asked for; None where nobody asks.

    Raises:
        Refused: `bad_parameter`.
    """
    if text is None:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(most)) else -1
    if str(number) != text or not least <= number <= most:
        raise Refused(Reason.BAD_PARAMETER, f"{name}: {quote(text)} is not an integer from {least} to {most:,}.")
    return number


def _digest(numbers: tuple[int, ...], question: str, opaque: OpaqueNumbers | None) -> bytes:
    content = f"{numbers} {question}".encode(errors="surrogatepass")
    return blake2s(content, digest_size=8, key=b"" if opaque is None else opaque.secret).digest()


def _epoch_us(instant: datetime | None) -> int:
    return _NEVER if instant is None else (instant - _EPOCH) // timedelta(microseconds=1)


def _instant(epoch_us: int) -> datetime | None:
    return None if epoch_us == _NEVER else _EPOCH + timedelta(microseconds=epoch_us)
